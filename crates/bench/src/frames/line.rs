//! What a wire carries: the theoretical bound.

/// Speeds of wires in Gb/s.
pub const SPEEDS: [u32; 3] = [10, 25, 100];

/// Bytes that a wire needs for each frame beside it: preamble, start delimiter, gap.
const BESIDE: usize = 20;

/// Millions of frames of so many bytes, check sequence counted, that a wire of `speed` Gb/s carries each second.
pub fn rate(speed: u32, bytes: usize) -> f64 {
    f64::from(speed) * 1e3 / ((bytes + BESIDE) * 8) as f64
}

/// Gb/s of frame bytes, neither preamble nor gap counted.
pub fn gbps(mpps: f64, bytes: usize) -> f64 {
    mpps * (bytes * 8) as f64 / 1e3
}

/// The fastest wire that is filled in each of `ways` directions by so many millions of frames a second in all; 0 for none.
pub fn filled(mpps: f64, bytes: usize, ways: u32) -> u32 {
    let full = |speed: &u32| mpps >= rate(*speed, bytes) * f64::from(ways);
    SPEEDS.into_iter().filter(full).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rate_of_ten_gigabits_is_the_known_one() {
        assert_eq!("14.88", format!("{:.2}", rate(10, 64)));
        assert_eq!("0.81", format!("{:.2}", rate(10, 1518)));
        assert_eq!("7.62", format!("{:.2}", gbps(rate(10, 64), 64)), "P0, Fig. 7 and 8");
    }
}
