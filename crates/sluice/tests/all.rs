//! All tests of the crate in one program, so that shared code is built and linked once.

mod counters;
mod daemon;
mod documents;
mod grammar;
mod hostile_text;
mod import;
mod inspect;
mod nat_document;
mod plan;
mod replay;
mod serving;
mod sites;
mod top;
