//! An in-memory DHCP server of an operator, which assigns the next free address to each client.

use std::net::Ipv4Addr;

/// Offset of the assigned address (yiaddr) in a message.
const GIVEN: usize = 16;
/// Offset of the options, which follow the magic cookie.
const OPTIONS: usize = 240;
const SERVER: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 1);
const LEASE: u32 = 86_400;

/// A DHCP server in memory.
#[derive(Clone, Copy, Debug)]
pub struct Operator {
    next: u32,
}

impl Operator {
    /// Create a server whose addresses start at `first`.
    pub fn new(first: Ipv4Addr) -> Self {
        Self { next: first.into() }
    }

    /// Returns the reply to a client's message; `None` if the message is not addressed to a server.
    pub fn answer(&mut self, question: &[u8]) -> Option<Vec<u8>> {
        let (answer, address) = match option(question, 53)? {
            [1] => {
                self.next += 1;
                (2, self.next - 1)
            }
            [3] => {
                let asked = option(question, 50)?.first_chunk()?;
                (5, u32::from_be_bytes(*asked))
            }
            _ => return None,
        };
        let mut bytes = question.get(..OPTIONS)?.to_vec();
        bytes[0] = 2;
        bytes[GIVEN..GIVEN + 4].copy_from_slice(&address.to_be_bytes());
        bytes.extend([53, 1, answer]);
        for (code, word) in [
            (54, u32::from(SERVER)),
            (51, LEASE),
            (1, 0xfffe_0000),
            (3, u32::from(SERVER)),
        ] {
            bytes.extend([code, 4]);
            bytes.extend(word.to_be_bytes());
        }
        bytes.push(255);
        Some(bytes)
    }
}

/// Returns the contents of an option.
fn option(message: &[u8], wanted: u8) -> Option<&[u8]> {
    let mut rest = message.get(OPTIONS..)?;
    loop {
        match *rest {
            [0, ..] => rest = &rest[1..],
            [code, length, ..] if code != 255 => {
                let (content, behind) = rest[2..].split_at_checked(length.into())?;
                if code == wanted {
                    return Some(content);
                }
                rest = behind;
            }
            _ => return None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn question(options: &[u8]) -> Vec<u8> {
        [&[1, 1, 6, 0], &[0; OPTIONS - 4][..], options].concat()
    }

    #[test]
    fn operator_offers_the_next_address_and_acknowledges_what_is_asked_for() {
        let mut operator = Operator::new(Ipv4Addr::new(198, 18, 1, 0));
        for last in [0, 1] {
            let offer = operator.answer(&question(&[0, 53, 1, 1, 255])).expect("an offer");
            assert_eq!(([198, 18, 1, last], Some(&[2][..])), {
                (*offer[GIVEN..].first_chunk().expect("four bytes"), option(&offer, 53))
            });
        }
        let request = question(&[53, 1, 3, 50, 4, 198, 18, 1, 1, 255]);
        let acknowledgement = operator.answer(&request).expect("an answer");
        assert_eq!(([198, 18, 1, 1], Some(&[5][..])), {
            let given = *acknowledgement[GIVEN..].first_chunk().expect("four bytes");
            (given, option(&acknowledgement, 53))
        });
        assert_eq!(None, operator.answer(&question(&[53, 1, 7, 255])), "a release");
        assert_eq!(None, operator.answer(&question(&[53, 9, 1])));
        assert_eq!(None, operator.answer(&[]));
    }
}
