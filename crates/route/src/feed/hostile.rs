//! Processing of arbitrary bytes, for tests and the fuzzer.

use std::collections::BTreeMap;

use super::{Feed, Links, MAIN_TABLE, RoutePeer, fpm};
use crate::Prefix;
use crate::rib::{MAX_HOPS, Origin, Rib};

/// Processes arbitrary bytes as if they were received on a connection.
pub fn hostile(bytes: &[u8]) {
    struct Nothing;
    impl crate::rib::Sink for Nothing {
        fn set(&mut self, _: Prefix, set: &crate::rib::ResolvedSet) {
            assert!((1..=MAX_HOPS).contains(&set.members().len()));
        }
        fn remove(&mut self, _: Prefix) {}
    }
    let settings = crate::rib::Settings {
        quota: 100,
        sets: 50,
        by_default_route: true,
    };
    let numbers = BTreeMap::from([(1, 0), (2, 1)]);
    for (origin, links) in [
        (Origin::Fpm, Links::Foreign),
        (Origin::Kernel, Links::Numbered(numbers)),
    ] {
        let mut rib = Rib::new(settings, [1, 2]);
        let table = MAIN_TABLE;
        let mut feed = Feed::new(RoutePeer { origin, table, links });
        let mut frames = fpm::FrameBuffer::default();
        for piece in bytes.chunks(bytes.len() / 3 + 1) {
            frames.push(piece);
            while let Ok(Some(frame)) = frames.take() {
                feed.follow(&mut rib, frame, 0);
            }
            rib.publish(&mut Nothing);
        }
        feed.begin(&mut rib);
        feed.follow(&mut rib, bytes, 0);
        feed.settle(&mut rib, 0);
        feed.end_dump();
        feed.follow(&mut rib, bytes, 0);
        feed.settle(&mut rib, 0);
        rib.end_replay(origin, usize::MAX);
        rib.publish(&mut Nothing);
        assert_eq!(0, rib.stale(origin));
    }
}
