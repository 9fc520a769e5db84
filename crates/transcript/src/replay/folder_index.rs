//! Recorded folders and the live folders in their place.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

use crate::path_index::{PathIndex, spellings};

/// A recorded folder, and the live one that stands in its place.
#[derive(Clone, Debug)]
pub(super) struct MappedFolder {
    pub(super) recorded: String,
    /// Both folders in each spelling.
    spellings: Vec<(String, String)>,
    /// The live one in a URI.
    encoded: String,
}

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
        let mut both: Vec<(String, String)> = Vec::new();
        for (recorded, live) in spellings(&recorded).into_iter().zip(live) {
            if both.iter().all(|(known, _)| *known != recorded) {
                both.push((recorded, live));
            }
        }
        if recorded.starts_with('[') {
            // A placeholder is spelled in one way.
            both.truncate(1);
        }
        Some(MappedFolder { recorded, spellings: both, encoded })
    }
}

/// The order in which folders take their place in a text: the deeper recorded folder first, then the one
/// that was added first.
type Order = (Reverse<usize>, u64);

/// The live spellings of a folder: as it is, and in a URI.
type Live = (String, String);

/// Folders by each of their recorded spellings.
#[derive(Debug, Default)]
pub(super) struct FolderIndex {
    paths: PathIndex<BTreeMap<Order, Live>>,
}

impl FolderIndex {
    /// Adds a folder. `number` is greater than that of all folders before it.
    pub(super) fn add(&mut self, folder: &MappedFolder, number: u64) {
        for (recorded, live) in &folder.spellings {
            let folders = self.paths.get_or_insert_with(recorded, BTreeMap::new);
            let order = (Reverse(folder.recorded.len()), number);
            folders.insert(order, (live.clone(), folder.encoded.clone()));
        }
    }

    fn remove(&mut self, folder: &MappedFolder, number: u64) {
        for (recorded, _) in &folder.spellings {
            let Some(folders) = self.paths.get_mut(recorded) else { continue };
            folders.remove(&(Reverse(folder.recorded.len()), number));
            if folders.is_empty() {
                self.paths.remove(recorded);
            }
        }
    }

    /// Appends the places where folders stand in a text. `rank` orders them among those of other indexes.
    fn find<'f>(&'f self, rank: u8, text: &str, found: &mut Vec<FoundFolder<'f>>) {
        self.paths.find(text.as_bytes(), |span, folders| {
            let Some((order, (live, encoded))) = folders.first_key_value() else { return };
            let uri = text.get(..span.start).is_some_and(|before| before.ends_with("://"));
            let goes_on = text.get(span.end..).is_some_and(|after| after.starts_with(['/', '\\']));
            let live = if uri { encoded } else { live };
            let live = if live.is_empty() && !goes_on { "/" } else { live };
            found.push(FoundFolder { order: (rank, *order), span, live });
        });
    }
}

struct FoundFolder<'f> {
    order: (u8, Order),
    span: Range<usize>,
    live: &'f str,
}

/// The folders of each lane, in the order in which they were learned.
#[derive(Debug, Default)]
pub(super) struct LaneFolders {
    lanes: HashMap<usize, FolderIndex>,
    all: FolderIndex,
    /// The number of each folder, by its lane and recorded path.
    learned: HashMap<(usize, String), (u64, MappedFolder)>,
    last: u64,
}

impl LaneFolders {
    /// Adds a folder to a lane, in place of the one with the same recorded path.
    pub(super) fn learn(&mut self, lane: usize, folder: MappedFolder) {
        let index = self.lanes.entry(lane).or_default();
        let key = (lane, folder.recorded.clone());
        if let Some((number, old)) = self.learned.remove(&key) {
            index.remove(&old, number);
            self.all.remove(&old, number);
        }
        self.last += 1;
        index.add(&folder, self.last);
        self.all.add(&folder, self.last);
        self.learned.insert(key, (self.last, folder));
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
        found.sort_by_key(|found| (found.order, found.span.start));
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
