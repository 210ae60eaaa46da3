//! Slab with stable indexes. The slab consists of chunks, so growth does not copy existing entries.

/// Number of entries in a chunk.
const CHUNK: usize = 1024;

/// Index that refers to no entry.
pub const NONE: u32 = u32::MAX;

/// Entries by index. The most recently freed index is reused first.
#[derive(Debug)]
pub struct Slab<T> {
    chunks: Vec<Vec<T>>,
    free: Vec<u32>,
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Self {
            chunks: Vec::new(),
            free: Vec::new(),
        }
    }
}

impl<T> Slab<T> {
    /// Adds an entry.
    pub fn add(&mut self, entry: T) -> u32 {
        if let Some(place) = self.free.pop() {
            self[place] = entry;
            return place;
        }
        if self.chunks.last().is_none_or(|chunk| chunk.len() == CHUNK) {
            // The first chunk grows on demand, because most routers have few routes.
            let capacity = if self.chunks.is_empty() { 0 } else { CHUNK };
            self.chunks.push(Vec::with_capacity(capacity));
        }
        let full = (self.chunks.len() - 1) * CHUNK;
        let last = self.chunks.last_mut().expect("one was pushed");
        last.push(entry);
        (full + last.len() - 1) as u32
    }

    /// Frees an index. The entry keeps its content until the index is reused.
    pub fn free(&mut self, place: u32) {
        self.free.push(place);
    }

    /// Exclusive upper bound of the indexes used so far.
    pub fn places(&self) -> u32 {
        match self.chunks.last() {
            Some(last) => ((self.chunks.len() - 1) * CHUNK + last.len()) as u32,
            None => 0,
        }
    }

    /// Number of heap bytes that the slab uses.
    pub fn bytes(&self) -> usize {
        let entries: usize = self.chunks.iter().map(Vec::capacity).sum();
        entries * size_of::<T>() + self.chunks.capacity() * size_of::<Vec<T>>() + self.free.capacity() * 4
    }
}

impl<T> std::ops::Index<u32> for Slab<T> {
    type Output = T;

    #[inline]
    fn index(&self, place: u32) -> &T {
        &self.chunks[place as usize / CHUNK][place as usize % CHUNK]
    }
}

impl<T> std::ops::IndexMut<u32> for Slab<T> {
    #[inline]
    fn index_mut(&mut self, place: u32) -> &mut T {
        &mut self.chunks[place as usize / CHUNK][place as usize % CHUNK]
    }
}
