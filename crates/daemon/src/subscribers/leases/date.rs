//! Converts the dates in dhcpd's files, which are in UTC.

/// Unix time in seconds of a Gregorian date and a time of day. `None` if the date or time is invalid.
pub fn seconds(date: [u64; 3], time: [u64; 3]) -> Option<u64> {
    let ([year, month, day], [hour, minute, second]) = (date, time);
    let leap = year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let lengths = [31, 28 + u64::from(leap), 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let index = usize::try_from(month).ok()?.checked_sub(1)?;
    let exists = (1970..10_000).contains(&year) && (1..=*lengths.get(index)?).contains(&day);
    // A leap second is valid.
    if !exists || hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    let before = year - 1;
    let leaps = |years: u64| years / 4 - years / 100 + years / 400;
    let days = (year - 1970) * 365 + leaps(before) - leaps(1969) + lengths[..index].iter().sum::<u64>() + day - 1;
    Some(((days * 24 + hour) * 60 + minute) * 60 + second)
}

#[cfg(test)]
mod tests {
    use super::seconds;

    #[test]
    fn date_known_days_are_their_seconds() {
        assert_eq!(Some(0), seconds([1970, 1, 1], [0, 0, 0]));
        assert_eq!(Some(951_782_400), seconds([2000, 2, 29], [0, 0, 0]));
        assert_eq!(Some(1_795_485_699), seconds([2026, 11, 24], [2, 1, 39]));
        assert_eq!(Some(4_107_542_400), seconds([2100, 3, 1], [0, 0, 0]));
    }

    #[test]
    fn date_that_does_not_exist_is_none() {
        for date in [
            [2025, 2, 29],
            [2100, 2, 29],
            [2025, 13, 1],
            [2025, 0, 1],
            [2025, 4, 31],
            [2025, 4, 0],
            [1969, 1, 1],
        ] {
            assert_eq!(None, seconds(date, [0, 0, 0]), "{date:?}");
        }
        assert_eq!(None, seconds([2025, 1, 1], [24, 0, 0]));
        assert_eq!(None, seconds([2025, 1, 1], [0, 60, 0]));
        assert_eq!(None, seconds([u64::MAX, 1, 1], [0, 0, 0]));
    }
}
