//! Copies of received frames. The copies are stored until buffers for sending them are allocated.

use arrayvec::ArrayVec;

/// Maximum number of copies in one burst.
pub const MAX: usize = 32;

/// Maximum number of bytes of all copies in one burst.
const BYTES: usize = 64 << 10;

/// Copies of received frames. The worker sends the copies after the nodes have run.
#[derive(Debug)]
pub struct Copies {
    bytes: Vec<u8>,
    /// End offset of each copy, and interface through which it is sent.
    ends: ArrayVec<(usize, u16), MAX>,
}

impl Default for Copies {
    fn default() -> Self {
        Self {
            bytes: Vec::with_capacity(BYTES),
            ends: ArrayVec::new(),
        }
    }
}

impl Copies {
    /// A store without capacity.
    pub const NONE: Self = Self {
        bytes: Vec::new(),
        ends: ArrayVec::new_const(),
    };

    /// Stores a copy of a frame for an interface. Returns `false` if there is no space.
    pub fn take(&mut self, interface: u16, frame: &[u8]) -> bool {
        let end = self.bytes.len() + frame.len();
        if end > self.bytes.capacity() || self.ends.try_push((end, interface)).is_err() {
            return false;
        }
        self.bytes.extend_from_slice(frame);
        true
    }

    /// The copied frames, each with its egress interface.
    pub fn iter(&self) -> impl Iterator<Item = (u16, &[u8])> {
        let mut start = 0;
        self.ends.iter().filter_map(move |&(end, interface)| {
            let frame = self.bytes.get(start..end)?;
            start = end;
            Some((interface, frame))
        })
    }

    /// Number of copies.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there are no copies.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Removes all copies.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_come_back_as_they_were_taken_up_to_their_room() {
        let mut copies = Copies::default();
        assert!(copies.take(3, b"one"));
        assert!(copies.take(4, b"other"));
        assert!(!copies.take(3, &vec![0; BYTES]));
        let all: Vec<_> = copies.iter().collect();
        assert_eq!(vec![(3, &b"one"[..]), (4, &b"other"[..])], all);
        copies.clear();
        assert!((0..MAX).all(|_| copies.take(1, b"")));
        assert!(!copies.take(1, b""));
        let mut none = Copies::NONE;
        assert!(!none.take(1, b"x"));
    }
}
