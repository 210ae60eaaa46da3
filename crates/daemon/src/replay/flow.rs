//! The flow of a frame.

use sluice_wire::layers::{Class, Fragment, parse};

/// Key that distinguishes flows in frames: protocol, addresses, ports.
pub fn flow(frame: &[u8]) -> (u8, [u64; 4], [u16; 2]) {
    let Ok(layers) = parse(frame) else {
        return Default::default();
    };
    let ports = match layers.fragment {
        Fragment::Whole => [layers.source_port, layers.destination_port],
        _ => [0; 2],
    };
    match layers.class {
        Class::Ipv4 => {
            let key = layers.key4(frame, 0);
            let tuple = key.tuple();
            let (source, destination) = (tuple.source.into(), tuple.destination.into());
            (key.protocol(), [0, source, 0, destination], ports)
        }
        Class::Ipv6 => {
            let key = layers.key6(frame, 0);
            let tuple = key.tuple();
            let ([a, b], [c, d]) = (tuple.source, tuple.destination);
            (key.protocol(), [a, b, c, d], ports)
        }
        _ => Default::default(),
    }
}
