//! The folder for state that outlives a process, and the token of the server in it.

use std::env::var_os;
use std::fs::{File, Metadata};
use std::io::Read as _;
use std::path::{Path, PathBuf};

#[cfg(all(unix, feature = "serve"))]
use duologue_http::FileId;
use duologue_http::SecretText;
use duologue_http::raw::literal_address;
use duologue_transcript::private_file::{access_of_others, may_all_use, replaceable_by_others};

use crate::error::{Error, Result};
use crate::files::in_file;
use crate::ui;

/// Returns the folder of this user: `$XDG_STATE_HOME/duologue` or `~/.local/state/duologue` on Linux.
pub(crate) fn of_user() -> Result<PathBuf> {
    let set = |name: &str| var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let base = if cfg!(windows) {
        set("LOCALAPPDATA")
    } else if cfg!(target_os = "macos") {
        set("HOME").map(|home| home.join("Library/Application Support"))
    } else {
        set("XDG_STATE_HOME").or_else(|| set("HOME").map(|home| home.join(".local/state")))
    };
    let missing =
        || Error::Usage("HOME is not set, so there is no state folder; name one with --data".into());
    Ok(base.ok_or_else(missing)?.join("duologue"))
}

/// Returns the path of the token in a state folder.
pub(crate) fn token_path(folder: &Path) -> PathBuf {
    folder.join("token")
}

/// Returns the path of the socket of a server in its state folder.
#[cfg(unix)]
pub(crate) fn socket_path(folder: &Path) -> PathBuf {
    folder.join("socket")
}

/// Returns the path of the file with the address of the running server.
fn address_path(folder: &Path) -> PathBuf {
    folder.join("address")
}

/// The address of a running server, in its state folder. Dropping it removes the file.
#[cfg(feature = "serve")]
pub(crate) struct PublishedAddress {
    path: PathBuf,
    /// The file. Another server may have written its own since.
    #[cfg(unix)]
    id: Option<FileId>,
    /// Shows that this server runs.
    #[cfg(windows)]
    held: Option<File>,
}

#[cfg(feature = "serve")]
impl PublishedAddress {
    /// Writes the address. The caller has the folder for itself.
    pub(crate) fn write(folder: &Path, scheme: &str, address: std::net::SocketAddr) -> Result<Self> {
        let path = address_path(folder);
        write_private(folder, &path, &format!("{scheme}://{address}"))?;
        #[cfg(windows)]
        let held = {
            use std::os::windows::fs::OpenOptionsExt as _;
            // Others can read the file, and neither write nor remove it.
            let opened = std::fs::OpenOptions::new().read(true).share_mode(1).open(&path);
            Some(opened.map_err(in_file(path.display()))?)
        };
        Ok(PublishedAddress {
            #[cfg(unix)]
            id: FileId::of(&path),
            path,
            #[cfg(windows)]
            held,
        })
    }
}

#[cfg(feature = "serve")]
impl PublishedAddress {
    /// Removes the address of an earlier server, which was killed. The caller has the folder for itself.
    pub(crate) fn remove(folder: &Path) -> Result<()> {
        let path = address_path(folder);
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(in_file(path.display())(error).into())
            }
            _ => Ok(()),
        }
    }
}

#[cfg(feature = "serve")]
impl Drop for PublishedAddress {
    fn drop(&mut self) {
        #[cfg(windows)]
        drop(self.held.take());
        #[cfg(unix)]
        if self.id != FileId::of(&self.path) {
            return;
        }
        // If it is gone already, there is nothing to do.
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Returns the address that a server of this user has written to its state folder.
///
/// # Errors
///
/// If there is no such file, or others could have written it: they could lead the token to a program of theirs.
pub(crate) fn server_url(folder: &Path) -> Result<String> {
    let path = address_path(folder);
    let read = || {
        let file = File::open(&path)?;
        let found = file.metadata()?;
        Ok((read_start(&file)?, found))
    };
    let (url, found) = read().map_err(|error: std::io::Error| {
        let remedy = "start a server with `duologue serve`, or name the address of one";
        Error::Usage(format!("{}: {error}; {remedy}", path.display()))
    })?;
    check_private(&path, &found, 0o022, "remove it, and start the server again")?;
    Ok(url.trim().to_owned())
}

/// Returns the token of the running server of a state folder, if `url` has the address of that server in numbers.
///
/// # Errors
///
/// As [`check_server`], and if the token cannot be read.
pub(crate) fn token_for(folder: &Path, url: &str) -> std::io::Result<SecretText> {
    check_server(folder, url)?;
    read_token(&token_path(folder)).map_err(std::io::Error::other)
}

/// Checks that `url` has the address, in numbers, that the running server of a state folder has written. A name can lead to
/// another program, and without a running server another user can listen at the address.
///
/// # Errors
///
/// If there is no such server, or it is at another address.
fn check_server(folder: &Path, url: &str) -> std::io::Result<()> {
    let refused = |reason: &str| {
        let shown = folder.display();
        std::io::Error::other(format!("the server of {shown} {reason}, so its token is not sent there"))
    };
    let own = server_url(folder).ok().and_then(|own| literal_address(&own));
    if own.is_none() || literal_address(url) != own {
        return Err(refused("has no such address"));
    }
    if !is_running(folder) {
        return Err(refused("does not run"));
    }
    Ok(())
}

/// Returns the path of the file with the path of the configuration that the last hub had.
#[cfg(feature = "serve")]
fn last_config_path(folder: &Path) -> PathBuf {
    folder.join("last-config")
}

/// Checks that the last hub of a folder had this configuration, or one whose file is not there any more. Another one would
/// end the work of its principals and of its agents.
#[cfg(feature = "serve")]
pub(crate) fn check_config(folder: &Path, config: &Path) -> Result<()> {
    let path = last_config_path(folder);
    let read = File::open(&path).and_then(|file| read_start(&file));
    let last = match read {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        read => read.map_err(in_file(path.display()))?,
    };
    let last = Path::new(last.trim_end_matches('\n'));
    let is_same = last == Path::new(&*config.to_string_lossy())
        || last.canonicalize().is_ok_and(|last| config.canonicalize().is_ok_and(|config| config == last));
    if is_same || !last.is_file() {
        return Ok(());
    }
    let (folder, last, config) = (folder.display(), last.display(), config.display());
    Err(Error::Usage(format!(
        "{folder}: the folder of the user is that of the hub with {last}, whose principals and agents {config} would remove; \
         name another folder with `data` in {config} or with --data, or name this one if {config} replaces that file"
    )))
}

/// Writes the path of the configuration of a hub that has opened the folder.
#[cfg(feature = "serve")]
pub(crate) fn remember_config(folder: &Path, config: &Path) -> Result<()> {
    let (path, text) = (last_config_path(folder), config.to_string_lossy());
    // A full disk has no room for it.
    if File::open(&path)
        .and_then(|file| read_start(&file))
        .is_ok_and(|last| last.trim_end_matches('\n') == text)
    {
        return Ok(());
    }
    write_private(folder, &path, &text)
}

/// Returns true if a server of this user listens on the socket of a folder. The user of its file is the one that has bound it.
#[cfg(unix)]
pub(crate) fn is_running(folder: &Path) -> bool {
    use std::os::unix::fs::MetadataExt as _;

    let path = socket_path(folder);
    let user = rustix::process::geteuid().as_raw();
    let is_own = std::fs::symlink_metadata(&path).is_ok_and(|found| found.uid() == user);
    is_own && is_listening(&path).unwrap_or_default()
}

/// Returns true if a program listens on a socket, also if it accepts nothing now.
#[cfg(unix)]
fn is_listening(path: &Path) -> rustix::io::Result<bool> {
    use rustix::io::{Errno, FdFlags, fcntl_setfd, ioctl_fionbio};
    use rustix::net::{AddressFamily, SocketAddrUnix, SocketType, connect, socket};

    let socket = socket(AddressFamily::UNIX, SocketType::STREAM, None)?;
    fcntl_setfd(&socket, FdFlags::CLOEXEC)?;
    ioctl_fionbio(&socket, true)?;
    match connect(&socket, &SocketAddrUnix::new(path)?) {
        // Its queue is full.
        Err(Errno::AGAIN | Errno::INPROGRESS) => Ok(true),
        connected => connected.map(|()| true),
    }
}

/// Returns true if a server holds the file of its address open. It ends with the process, whatever ends it.
#[cfg(not(unix))]
pub(crate) fn is_running(folder: &Path) -> bool {
    is_held(&std::fs::OpenOptions::new().write(true).open(address_path(folder)))
}

/// The error of Windows for a file that another program has opened without sharing.
#[cfg(any(not(unix), all(test, feature = "serve")))]
const SHARING_VIOLATION: i32 = 32;

/// Returns true if a file could not be opened for writing because another program holds it.
#[cfg(any(not(unix), all(test, feature = "serve")))]
fn is_held(opened: &std::io::Result<File>) -> bool {
    opened.as_ref().is_err_and(|error| error.raw_os_error() == Some(SHARING_VIOLATION))
}

/// Reads the beginning of a file. A token or an address has 100 characters; a wrong path can be any file.
fn read_start(file: &File) -> std::io::Result<String> {
    let mut text = String::new();
    file.take(4096).read_to_string(&mut text)?;
    Ok(text)
}

/// Writes a file that only this user can read, at once.
#[cfg(feature = "serve")]
fn write_private(folder: &Path, path: &Path, text: &str) -> Result<()> {
    use std::io::Write as _;

    let write = || {
        let mut file = tempfile::NamedTempFile::new_in(folder)?;
        writeln!(file, "{text}")?;
        file.as_file().sync_all()?;
        file.persist(path)?;
        Ok(())
    };
    write().map_err(in_file(path.display()))?;
    Ok(())
}

/// Reads a token that the user has named.
pub(crate) fn read_token(path: &Path) -> Result<SecretText> {
    token_of(path, &open_secret(path)?)
}

/// Opens a file of secrets that the user has named. It is rejected if another user owns it or can replace it, and a warning is
/// shown if all users can read it.
pub(crate) fn open_secret(path: &Path) -> Result<File> {
    let file = File::open(path).map_err(in_file(path.display()))?;
    let found = file.metadata().map_err(in_file(path.display()))?;
    check_replaceable(path, &found, "")?;
    warn_if_shared(path, &found);
    Ok(file)
}

/// Reads the token of an open file.
fn token_of(path: &Path, file: &File) -> Result<SecretText> {
    let token = read_start(file).map_err(in_file(path.display()))?;
    let token = token.trim();
    if token.is_empty() || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(Error::Usage(format!("{} contains no token", path.display())));
    }
    Ok(token.into())
}

/// Creates the data folder of a server for this user alone, and checks one that is there.
///
/// # Errors
///
/// If another user owns the folder or its logs, or can write to the folder or replace it.
#[cfg(feature = "serve")]
pub(crate) fn prepare(folder: &Path) -> Result<()> {
    let mut builder = std::fs::DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.recursive(true).create(folder).map_err(in_file(folder.display()))?;
    check_folder(folder, 0o022, "use `chmod go-w`, or name another folder with --data")?;
    let logs = folder.join("sessions");
    if logs.exists() {
        check_folder(&logs, 0o077, "use `chmod go=`")?;
    }
    Ok(())
}

/// Rejects a file, and a folder as [`check_private`] or that others can replace. `advice` is about its mode.
#[cfg(feature = "serve")]
fn check_folder(path: &Path, mask: u32, advice: &str) -> Result<()> {
    const OTHER: &str = "name another folder with --data";
    let found = std::fs::metadata(path).map_err(in_file(path.display()))?;
    if !found.is_dir() {
        return Err(Error::Usage(format!(
            "{}: it is not a folder; move it away, or {OTHER}",
            path.display()
        )));
    }
    // Its mode can only be changed by its owner.
    check_private(path, &found, 0, OTHER)?;
    check_private(path, &found, mask, advice)?;
    check_replaceable(path, &found, &format!(", or {OTHER}"))
}

/// Rejects a file or folder that other users can replace. `advice` goes on after that about the folder in which they can.
fn check_replaceable(path: &Path, found: &Metadata, advice: &str) -> Result<()> {
    match replaceable_by_others(path, found)? {
        Some(fault) => Err(Error::Usage(format!("{fault}{advice}"))),
        None => Ok(()),
    }
}

/// Rejects a file or folder that another user owns, or to which others have the rights of `mask`.
fn check_private(path: &Path, found: &Metadata, mask: u32, advice: &str) -> Result<()> {
    match access_of_others(found, mask) {
        Some(fault) => Err(Error::Usage(format!("{}: {fault}; {advice}", path.display()))),
        None => Ok(()),
    }
}

/// Rejects the key of a certificate that others can replace, and warns about one that they can read.
#[cfg(all(feature = "serve", feature = "tls"))]
pub(crate) fn check_key(path: &Path) -> Result<()> {
    let found = std::fs::metadata(path).map_err(in_file(path.display()))?;
    check_private(path, &found, 0o022, "the key of a server belongs to its user alone")?;
    check_replaceable(path, &found, "")?;
    warn_if_shared(path, &found);
    Ok(())
}

/// Rejects the key of a certificate of this user that others can read or replace.
#[cfg(feature = "tls")]
pub(crate) fn check_own_key(path: &Path) -> Result<()> {
    let found = std::fs::metadata(path).map_err(in_file(path.display()))?;
    let advice = "use `chmod go=`, since who has the key is its user for every server";
    check_private(path, &found, 0o077, advice)?;
    check_replaceable(path, &found, "")
}

/// Warns about a secret that every user of the system can read.
fn warn_if_shared(path: &Path, found: &Metadata) {
    use std::io::Write as _;

    if may_all_use(found) {
        // If stderr is closed, nobody reads it.
        let _ = writeln!(ui::stderr(), "warning: all users can read {}; use `chmod o=`", path.display());
    }
}

/// The least length of a token that a server accepts as its own, in characters. One that can be guessed protects nothing.
#[cfg(feature = "serve")]
const TOKEN_LENGTH: usize = 32;

/// Reads the token of a state folder, and creates it for the first server. Only this user can read the file.
///
/// The caller has the folder for itself. A file without content is replaced: a file system may leave it after a power cut.
#[cfg(feature = "serve")]
pub(crate) fn token(folder: &Path) -> Result<SecretText> {
    let path = token_path(folder);
    let remedy = "remove it, and the server writes a new token";
    match std::fs::metadata(&path) {
        // Opening a pipe would wait for its writer.
        Ok(found) if found.is_file() && found.len() > 0 => {
            let file = File::open(&path).map_err(in_file(path.display()))?;
            let found = file.metadata().map_err(in_file(path.display()))?;
            check_private(&path, &found, 0o077, remedy)?;
            let token = token_of(&path, &file)?;
            if token.as_str().len() < TOKEN_LENGTH {
                let (path, length) = (path.display(), token.as_str().len());
                let why =
                    format!("{path}: the token has {length} characters, {TOKEN_LENGTH} are needed; {remedy}");
                return Err(Error::Usage(why));
            }
            return Ok(token);
        }
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            return Err(in_file(path.display())(error).into());
        }
        _ => {}
    }
    let token = format!("{}{}", uuid::Uuid::new_v4().simple(), uuid::Uuid::new_v4().simple());
    write_private(folder, &path, &token)?;
    Ok(token.into())
}

#[cfg(all(test, unix, feature = "serve"))]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn a_token_is_for_the_address_of_the_running_server() {
        let base = tempfile::tempdir().unwrap();
        let folder = base.path();
        let (url, at) = ("http://127.0.0.1:8931/acp", "127.0.0.1:8931".parse().unwrap());
        std::fs::write(token_path(folder), "a".repeat(TOKEN_LENGTH)).unwrap();
        let published = PublishedAddress::write(folder, "http", at).unwrap();
        let refused =
            |url| check_server(folder, url).err().map(|error| error.to_string()).unwrap_or_default();
        assert!(refused(url).contains("does not run"));
        let listener = UnixListener::bind(socket_path(folder)).unwrap();
        assert_eq!(refused(url), "");
        assert!(token_for(folder, url).is_ok());
        // Others can have written it.
        let address = address_path(folder);
        std::fs::set_permissions(&address, std::fs::Permissions::from_mode(0o666)).unwrap();
        assert!(server_url(folder).unwrap_err().to_string().contains("other users have access to it"));
        assert!(refused(url).contains("no such address") && token_for(folder, url).is_err());
        std::fs::set_permissions(&address, std::fs::Permissions::from_mode(0o600)).unwrap();
        for other in ["http://127.0.0.1:8932/acp", "http://localhost:8931/acp", "https://127.0.0.2:8931"] {
            assert!(
                refused(other).contains("no such address") && token_for(folder, other).is_err(),
                "{other}"
            );
        }
        // The server was killed, and its files stay.
        drop(listener);
        assert!(refused(url).contains("does not run") && token_for(folder, url).is_err());
        drop(published);
        assert!(refused(url).contains("no such address"));
    }

    #[test]
    fn a_server_that_accepts_nothing_is_running() {
        use rustix::net::{AddressFamily, SocketAddrUnix, SocketType, bind, listen, socket};

        let folder = tempfile::tempdir().unwrap();
        let path = socket_path(folder.path());
        let socket = socket(AddressFamily::UNIX, SocketType::STREAM, None).unwrap();
        bind(&socket, &SocketAddrUnix::new(&path).unwrap()).unwrap();
        assert!(!is_running(folder.path()));
        listen(&socket, 0).unwrap();
        // The second one finds a full queue on Linux.
        assert!(is_running(folder.path()) && is_running(folder.path()));
    }

    #[test]
    fn a_file_is_held_only_with_the_error_of_a_file_that_is_not_shared() {
        let error = |code| Err(std::io::Error::from_raw_os_error(code));
        assert!(is_held(&error(SHARING_VIOLATION)));
        // Access denied, and no such file.
        assert!(!is_held(&error(5)) && !is_held(&error(2)));
        assert!(!is_held(&Ok(tempfile::tempfile().unwrap())));
    }

    #[test]
    fn a_folder_belongs_to_the_configuration_of_its_last_hub() {
        let base = tempfile::tempdir().unwrap();
        let [first, second, link] =
            ["first.toml", "second.toml", "link.toml"].map(|name| base.path().join(name));
        for file in [&first, &second] {
            std::fs::write(file, "").unwrap();
        }
        std::os::unix::fs::symlink(&first, &link).unwrap();
        let refused = |config: &Path| check_config(base.path(), config).err().map(|error| error.to_string());
        assert_eq!(refused(&first), None);
        remember_config(base.path(), &first).unwrap();
        assert_eq!((refused(&first), refused(&link)), (None, None));
        let why = refused(&second).unwrap();
        assert!(why.contains(first.to_str().unwrap()) && why.contains("--data"), "{why}");
        // It was moved.
        std::fs::rename(&first, base.path().join("moved.toml")).unwrap();
        assert_eq!(refused(&second), None);
        remember_config(base.path(), &second).unwrap();
        assert!(refused(&base.path().join("moved.toml")).is_some());
    }

    #[test]
    fn the_folder_of_a_server_is_for_its_user() {
        let base = tempfile::tempdir().unwrap();
        let folder = base.path().join("a/b");
        prepare(&folder).unwrap();
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&folder), 0o700);
        prepare(&folder).unwrap();
        let set = |path: &Path, mode| {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
        };
        let logs = folder.join("sessions");
        std::fs::create_dir(&logs).unwrap();
        set(&logs, 0o777);
        assert!(prepare(&folder).is_err());
        set(&logs, 0o700);
        prepare(&folder).unwrap();
        let refused = || prepare(&folder).unwrap_err().to_string();
        set(&folder, 0o777);
        assert!(refused().contains("`chmod go-w`"));
        set(&folder, 0o700);
        let parent = folder.parent().unwrap();
        for (mode, is_refused) in [(0o777, true), (0o1777, false), (0o772, true), (0o775, false)] {
            set(parent, mode);
            assert_eq!(prepare(&folder).is_err(), is_refused, "{mode:o}");
        }
        set(parent, 0o777);
        assert!(refused().contains(&format!("{}: all users can", parent.canonicalize().unwrap().display())));
        set(parent, 0o700);
        // A link in such a folder, which leads to one that is safe.
        let open = base.path().join("open");
        std::fs::create_dir(&open).unwrap();
        std::os::unix::fs::symlink(&folder, open.join("link")).unwrap();
        std::os::unix::fs::symlink("open/link", base.path().join("twice")).unwrap();
        for (mode, is_refused) in [(0o777, true), (0o1777, false), (0o700, false)] {
            set(&open, mode);
            for path in [open.join("link"), base.path().join("twice")] {
                assert_eq!(prepare(&path).is_err(), is_refused, "{path:?} {mode:o}");
            }
        }
        std::fs::remove_dir(&logs).unwrap();
        set(&open, 0o777);
        std::fs::create_dir_all(open.join("logs")).unwrap();
        set(&open.join("logs"), 0o700);
        std::os::unix::fs::symlink(open.join("logs"), &logs).unwrap();
        assert!(refused().contains("all users can rename"));
        std::fs::remove_file(&logs).unwrap();
        std::fs::write(&logs, "").unwrap();
        assert!(refused().contains("it is not a folder") && !refused().contains("chmod"));
        // Only `root` can give a folder away. For others there is one of `root`.
        let is_root = std::os::unix::fs::chown(&folder, Some(7), None).is_ok();
        let other = if is_root { &*folder } else { Path::new("/usr") };
        let refused = prepare(other).unwrap_err().to_string();
        assert!(refused.contains("it belongs to the user") && !refused.contains("chmod"), "{refused}");
    }
}
