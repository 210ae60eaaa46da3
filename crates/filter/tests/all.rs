//! All integration tests of the crate in one program, so that shared code is built and linked once.

mod applications;
mod conditions;
mod drawn;
mod edits;
mod going_on;
mod list;
mod oracle;
mod paper;
mod sets;
