//! All tests of the crate, in one program: what they share is built and linked once.

mod agreement;
mod checksum;
mod hostile;
mod made;
mod validity;
