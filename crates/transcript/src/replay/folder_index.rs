//! Recorded folders and the live folders in their place.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

use crate::path_index::{PathIndex, spellings};

/// A recorded folder in each spelling, and the live one that stands in its place.
#[derive(Clone, Debug)]
pub(super) struct MappedFolder(Vec<(String, LiveFolder)>);

impl MappedFolder {
    /// Returns `None` for a relative path and for a root: no text tells a path in it from any other.
    pub(super) fn new(recorded: &str, live: &str) -> Option<Self> {
        let trimmed = |path: &str| path.trim_end_matches(['/', '\\']).to_owned();
        let (recorded, live) = (trimmed(recorded), trimmed(live));
        let absolute = recorded.starts_with(['/', '[']) || recorded.as_bytes().get(1) == Some(&b':');
        if !absolute {
            return None;
        }
        let live = spellings(&live);
        let [_, _, slashes, _] = &live;
        let [_, encoded, _, _] = spellings(slashes);
        let mut both: Vec<(String, LiveFolder)> = Vec::new();
        for (spelling, live) in spellings(&recorded).into_iter().zip(live) {
            if both.iter().all(|(known, _)| *known != spelling) {
                both.push((spelling, LiveFolder { live, encoded: encoded.clone() }));
            }
        }
        Some(MappedFolder(both))
    }
}

/// The live folder of a recorded spelling.
#[derive(Clone, Debug)]
struct LiveFolder {
    live: String,
    /// The live folder in a URI.
    encoded: String,
}

/// Live folders by each recorded spelling, with the lane that learned each first.
#[derive(Debug, Default)]
pub(super) struct FolderIndex {
    paths: PathIndex<(usize, LiveFolder)>,
}

impl FolderIndex {
    /// Adds a folder, unless another lane has added it before.
    pub(super) fn add(&mut self, lane: usize, folder: &MappedFolder) {
        for (recorded, live) in &folder.0 {
            let known = self.paths.get_or_insert_with(recorded, || (lane, live.clone()));
            if known.0 == lane {
                known.1 = live.clone();
            }
        }
    }

    /// Appends the places where folders stand in a text. `rank` orders them among those of other indexes.
    fn find<'f>(&'f self, rank: u8, text: &str, found: &mut Vec<FoundFolder<'f>>) {
        self.paths.find(text.as_bytes(), |span, (_, folder)| {
            let uri = text.get(..span.start).is_some_and(|before| before.ends_with("://"));
            let goes_on = text.get(span.end..).is_some_and(|after| after.starts_with(['/', '\\']));
            let live = if uri { &folder.encoded } else { &folder.live };
            let live = if live.is_empty() && !goes_on { "/" } else { live };
            found.push(FoundFolder { rank, span, live });
        });
    }
}

struct FoundFolder<'f> {
    /// The rank of its index.
    rank: u8,
    span: Range<usize>,
    live: &'f str,
}

/// The folders of each lane, and of all.
#[derive(Debug, Default)]
pub(super) struct LaneFolders {
    lanes: HashMap<usize, FolderIndex>,
    all: FolderIndex,
}

impl LaneFolders {
    /// Adds a folder to a lane, in place of the one with the same recorded path.
    pub(super) fn learn(&mut self, lane: usize, folder: &MappedFolder) {
        self.lanes.entry(lane).or_default().add(lane, folder);
        self.all.add(lane, folder);
    }

    /// Returns the places where recorded folders stand in a text, and the live text for each. Folders of
    /// `message` go first, then those of the lane, of other lanes and of `machine`; in each of these
    /// groups a deeper folder goes before the one that contains it.
    pub(super) fn find<'f>(
        &'f self,
        lane: usize,
        message: Option<&'f FolderIndex>,
        machine: Option<&'f FolderIndex>,
        text: &str,
    ) -> Vec<(Range<usize>, &'f str)> {
        let mut found = Vec::new();
        let groups = [message, self.lanes.get(&lane), Some(&self.all), machine];
        for (rank, folders) in (0..).zip(groups) {
            folders.into_iter().for_each(|folders| folders.find(rank, text, &mut found));
        }
        // Within an index, the deeper of two folders at one place comes first already.
        found.sort_by_key(|found| found.rank);
        // Start and end of each place that is taken.
        let mut taken: BTreeMap<usize, usize> = BTreeMap::new();
        found.retain(|FoundFolder { span, .. }| {
            let before = taken.range(..span.end).next_back();
            let free = before.is_none_or(|(_, end)| *end <= span.start);
            if free {
                taken.insert(span.start, span.end);
            }
            free
        });
        // A folder that keeps its name has taken its place, so that no other folder can.
        let changed = found.into_iter().filter(|found| text.get(found.span.clone()) != Some(found.live));
        changed.map(|found| (found.span, found.live)).collect()
    }
}
