//! The parts of writing artifacts that depend on the operating system: owners and permissions of
//! files.

#[cfg(unix)]
pub(super) use self::unix::{FileAccess, private, special_bits};

#[cfg(unix)]
mod unix {
    use std::io;
    use std::os::unix::fs::fchown;

    use cap_std::fs::{
        File, Metadata, MetadataExt, OpenOptions, OpenOptionsExt, Permissions, PermissionsExt,
    };

    use crate::work::artifacts::ArtifactError as Fault;

    /// The permission bits of a file: read, write and execute for owner, group and others.
    const PERMISSIONS: u32 = 0o777;

    /// Set-user-id, set-group-id and sticky: with these bits a copy of a file behaves differently.
    const SPECIAL: u32 = 0o7000;

    /// Returns options for creating a file that only its owner can open, from the start.
    pub(crate) fn private(options: &mut OpenOptions) -> OpenOptions {
        options.mode(0o600).clone()
    }

    /// Returns the mode of a file that has special bits.
    pub(crate) fn special_bits(metadata: &Metadata) -> Option<u32> {
        let mode = metadata.mode() & (SPECIAL | PERMISSIONS);
        (mode & SPECIAL != 0).then_some(mode)
    }

    /// The owner, the group and the permissions of a file.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(crate) struct FileAccess {
        owner: u32,
        group: u32,
        mode: u32,
    }

    impl FileAccess {
        pub(crate) fn of(metadata: &Metadata) -> Self {
            let mode = metadata.mode() & PERMISSIONS;
            FileAccess { owner: metadata.uid(), group: metadata.gid(), mode }
        }

        /// Rejects the replacement of another user's file by `new`, which belongs to this process.
        pub(crate) fn check_owner(&self, new: &Metadata) -> Result<(), Fault> {
            let ours = new.uid();
            if self.owner == ours { Ok(()) } else { Err(Fault::ForeignOwner { owner: self.owner, ours }) }
        }

        /// Gives one of our files this group and these permissions, never more than these.
        pub(crate) fn give_to(&self, file: &File) -> Result<(), Fault> {
            let now = FileAccess::of(&file.metadata()?);
            if now.group != self.group {
                // Otherwise the permissions of one group would apply to another.
                fchown(file, None, Some(self.group)).map_err(|error| match error.kind() {
                    io::ErrorKind::PermissionDenied => Fault::ForeignGroup { group: self.group },
                    _ => Fault::Io(error),
                })?;
            }
            // Some file systems have one mode for all files, and reject every change.
            if now.mode != self.mode {
                file.set_permissions(Permissions::from_mode(self.mode))?;
            }
            Ok(())
        }
    }

    #[cfg(test)]
    mod tests {
        use cap_std::ambient_authority;
        use cap_std::fs::Dir;

        use super::*;

        #[test]
        fn only_a_file_of_this_user_is_replaced() {
            let folder = tempfile::tempdir().unwrap();
            std::fs::write(folder.path().join("ours"), "").unwrap();
            let folder = Dir::open_ambient_dir(folder.path(), ambient_authority()).unwrap();
            let ours = folder.metadata("ours").unwrap();
            assert!(FileAccess::of(&ours).check_owner(&ours).is_ok());
            let theirs = FileAccess { owner: ours.uid() + 1, ..FileAccess::of(&ours) };
            let fault = theirs.check_owner(&ours).unwrap_err();
            assert!(matches!(fault, Fault::ForeignOwner { .. }), "{fault}");
        }
    }
}

#[cfg(not(unix))]
pub(super) use self::other::{FileAccess, private, special_bits};

#[cfg(not(unix))]
mod other {
    use cap_std::fs::{File, Metadata, OpenOptions, Permissions};

    use crate::work::artifacts::ArtifactError as Fault;

    /// A new file has the access of its folder.
    pub(crate) fn private(options: &mut OpenOptions) -> OpenOptions {
        options.clone()
    }

    /// Returns `None`: there are no special bits.
    pub(crate) fn special_bits(_: &Metadata) -> Option<u32> {
        None
    }

    /// The permissions of a file.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub(crate) struct FileAccess(Permissions);

    impl FileAccess {
        pub(crate) fn of(metadata: &Metadata) -> Self {
            FileAccess(metadata.permissions())
        }

        pub(crate) fn check_owner(&self, _: &Metadata) -> Result<(), Fault> {
            Ok(())
        }

        /// Gives one of our files these permissions.
        pub(crate) fn give_to(&self, file: &File) -> Result<(), Fault> {
            Ok(file.set_permissions(self.0.clone())?)
        }
    }
}
