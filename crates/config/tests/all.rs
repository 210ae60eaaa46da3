//! All tests of the crate in one program, so that shared code is built and linked once.

mod examples;
mod filter;
mod filter_fields;
mod hostile;
mod import;
mod import_property;
mod layers;
mod limits;
mod refusals;
mod round_trip;
