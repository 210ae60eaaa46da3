//! Numbers of interfaces, virtual routers and ports. At the start, the numbers are in the order of the file. As long as
//! the process runs, a name keeps its number, because sessions, routes and neighbours refer to the number.

/// State of a number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Number {
    /// The item with this name uses the number.
    Of(String),
    /// The number is unused and available for a new item.
    Free,
    /// The number is unused but in quarantine, because references to its previous item may still exist.
    Quarantined,
}

/// Numbers of all items of one type, counted from 0.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Numbers(pub Vec<Number>);

impl Numbers {
    /// The numbering for these names. Known names keep their numbers, new names get free or additional numbers, and the
    /// numbers of removed names are put into quarantine.
    pub fn with<'n>(&self, names: impl Iterator<Item = &'n str> + Clone) -> Self {
        let retained = |number: &Number| match number {
            Number::Of(name) if !names.clone().any(|wanted| wanted == name) => Number::Quarantined,
            number => number.clone(),
        };
        let mut numbers: Vec<Number> = self.0.iter().map(retained).collect();
        for name in names.clone() {
            if numbers
                .iter()
                .any(|number| matches!(number, Number::Of(known) if known == name))
            {
                continue;
            }
            let new = Number::Of(name.to_owned());
            match numbers.iter_mut().find(|number| **number == Number::Free) {
                Some(free) => *free = new,
                None => numbers.push(new),
            }
        }
        Self(numbers)
    }

    /// Number of a name.
    pub fn of(&self, name: &str) -> Option<usize> {
        self.0
            .iter()
            .position(|number| matches!(number, Number::Of(known) if known == name))
    }

    /// Name of each number, if the number is in use.
    pub fn names(&self) -> impl Iterator<Item = Option<&str>> {
        self.0.iter().map(|number| match number {
            Number::Of(name) => Some(name.as_str()),
            Number::Free | Number::Quarantined => None,
        })
    }
}

/// The numbering of a configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Numbering {
    /// Interfaces.
    pub interfaces: Numbers,
    /// Virtual routers. The first entry is the default router.
    pub routers: Numbers,
    /// Interfaces with their own device, which are also ports.
    pub ports: Numbers,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_stay_with_their_names_and_those_of_what_is_gone_rest() {
        let start = Numbers::default().with(["a", "b", "c"].into_iter());
        assert_eq!(vec![Some("a"), Some("b"), Some("c")], start.names().collect::<Vec<_>>());
        let second = start.with(["d", "c", "a"].into_iter());
        assert_eq!(Number::Quarantined, second.0[1]);
        assert_eq!(
            vec![Some("a"), None, Some("c"), Some("d")],
            second.names().collect::<Vec<_>>()
        );
        let mut quarantined = second.clone();
        quarantined.0[1] = Number::Free;
        let third = quarantined.with(["a", "c", "d", "e"].into_iter());
        assert_eq!((Some(1), Some(3), None), (third.of("e"), third.of("d"), third.of("b")));
    }
}
