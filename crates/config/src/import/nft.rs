//! stub
use super::listing::Listing;
pub fn read(_: &str, _: &str, _: &mut Listing) -> Result<(), super::ImportError> { Ok(()) }
