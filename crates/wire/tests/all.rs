//! All integration tests of the crate in one program, so that shared code is built and linked once.

mod agreement;
mod checksum;
mod hostile;
mod made;
mod validity;
