//! Header fields: an offset and a number type. A read beyond the end of the header returns zero, and a write beyond the
//! end has no effect. Thus no accessor of this crate can panic.

/// A big-endian number at a fixed offset of a header.
#[derive(Clone, Copy, Debug)]
pub struct Field<T> {
    /// Offset of the first byte.
    pub offset: usize,
    number: std::marker::PhantomData<T>,
}

/// An Ethernet address.
pub type Mac = [u8; 6];

impl<T> Field<T> {
    /// The field at `offset`.
    pub const fn at(offset: usize) -> Self {
        Self {
            offset,
            number: std::marker::PhantomData,
        }
    }
}

macro_rules! number {
    ($type:ty, $size:literal, $from:expr, $to:expr) => {
        impl Field<$type> {
            /// Offset of the first byte after the field.
            pub const fn end(self) -> usize {
                self.offset + $size
            }

            /// Value of the field; zero if the header is too short.
            #[inline(always)]
            pub fn read(self, header: &[u8]) -> $type {
                match header
                    .get(self.offset..)
                    .and_then(|tail| tail.first_chunk::<$size>())
                {
                    Some(bytes) => $from(*bytes),
                    None => $from([0; $size]),
                }
            }

            /// Writes the field. No effect if the header is too short.
            #[inline(always)]
            pub fn write(self, header: &mut [u8], value: $type) {
                if let Some(bytes) = header
                    .get_mut(self.offset..)
                    .and_then(|tail| tail.first_chunk_mut::<$size>())
                {
                    *bytes = $to(value);
                }
            }
        }
    };
}
number!(u8, 1, u8::from_be_bytes, u8::to_be_bytes);
number!(u16, 2, u16::from_be_bytes, u16::to_be_bytes);
number!(u32, 4, u32::from_be_bytes, u32::to_be_bytes);
number!(u128, 16, u128::from_be_bytes, u128::to_be_bytes);
number!(Mac, 6, std::convert::identity, std::convert::identity);

/// Defines a header view: field constants, a constructor that checks the length, getters and setters.
macro_rules! header {
    (
        $(#[$meta:meta])* $name:ident $length:literal
        $($doc:literal $field:ident: $type:ty = $constant:ident @ $offset:literal, $set:ident;)*
    ) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug)]
        pub struct $name<B>(B);

        /// Length of the fixed part in bytes.
        pub const LENGTH: usize = $length;

        $(#[doc = $doc] pub const $constant: $crate::field::Field<$type> = $crate::field::Field::at($offset);)*

        impl<B: AsRef<[u8]>> $name<B> {
            /// A view of bytes that start with the header; `None` for fewer bytes than the fixed part.
            #[inline(always)]
            pub fn new(bytes: B) -> Option<Self> {
                if bytes.as_ref().len() < LENGTH { None } else { Some(Self(bytes)) }
            }

            /// All bytes of the view.
            #[inline(always)]
            pub fn bytes(&self) -> &[u8] {
                self.0.as_ref()
            }

            $(#[doc = $doc]
            #[inline(always)]
            pub fn $field(&self) -> $type {
                $constant.read(self.0.as_ref())
            })*
        }

        impl<B: AsMut<[u8]>> $name<B> {
            /// All bytes of the view, mutable.
            #[inline(always)]
            pub fn bytes_mut(&mut self) -> &mut [u8] {
                self.0.as_mut()
            }

            $(#[doc = concat!("Set: ", $doc)]
            #[inline(always)]
            pub fn $set(&mut self, value: $type) {
                $constant.write(self.0.as_mut(), value);
            })*
        }
    };
}
pub(crate) use header;
