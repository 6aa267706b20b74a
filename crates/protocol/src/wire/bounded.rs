//! Decoding within a bound of memory.
//!
//! **Problem.** A few bytes can become many: an empty list element of a byte or two is a structure
//! of a hundred bytes or more once it is decoded. A frame of the greatest length, made of nothing
//! but such elements, would take gigabytes.
//!
//! **Idea.** A layer between the encoding and the types, which sees every list, map, string and
//! byte string as it is decoded and takes its size out of a room: an element as large as its type,
//! a string as long as it is. Where the room is used up, decoding ends. The layer knows neither the
//! encoding nor the types, so that no new message can be forgotten.
//!
//! **Invariant.** What a decoder has made is at most twice as large as what was taken out of the
//! room, since a list that grows reserves up to twice its length, plus the value itself and one
//! element. Boxes count with what holds them, not what they hold: they stand one deep in elements
//! that are counted.

use super::Malformed;
use core::cell::Cell;
use core::fmt;
use serde::de::{
    DeserializeOwned, DeserializeSeed, Deserializer, EnumAccess, Error, MapAccess, SeqAccess,
    VariantAccess, Visitor,
};

/// Bytes of memory left.
struct Room(Cell<usize>);

impl Room {
    fn take<E: Error>(&self, bytes: usize) -> Result<(), E> {
        let left = self.0.get().checked_sub(bytes);
        self.0.set(left.unwrap_or(0));
        left.map(drop)
            .ok_or_else(|| E::custom("it takes more memory than it may"))
    }
}

/// Something of the decoder, or of a type, with the room beside it.
struct Bounded<'r, I> {
    inner: I,
    room: &'r Room,
    /// Its elements are counted: it is a list or a map, not the fields of a structure.
    counts: bool,
}

impl<'r, I> Bounded<'r, I> {
    fn new(inner: I, room: &'r Room) -> Bounded<'r, I> {
        Bounded {
            inner,
            room,
            counts: false,
        }
    }

    fn take<E: Error>(&self, elements: usize) -> Result<(), E> {
        if self.counts {
            self.room.take(elements)
        } else {
            Ok(())
        }
    }
}

/// The value that `bytes` encode, if they encode one and nothing else, and it takes at most `room`
/// bytes of memory; with how many it takes.
pub(super) fn decode<T: DeserializeOwned>(
    bytes: &[u8],
    room: usize,
) -> Result<(T, usize), Malformed> {
    let left = Room(Cell::new(room));
    let mut decoder = postcard::Deserializer::from_bytes(bytes);
    let value = T::deserialize(Bounded::new(&mut decoder, &left)).map_err(|_| Malformed)?;
    match decoder.finalize() {
        Ok([]) => Ok((value, room - left.0.get())),
        _ => Err(Malformed),
    }
}

macro_rules! forward {
    ($($name:ident($($argument:ident: $type:ty),*) $counts:literal;)*) => {$(
        fn $name<V: Visitor<'de>>(
            self,
            $($argument: $type,)*
            visitor: V,
        ) -> Result<V::Value, D::Error> {
            let visitor = Bounded { inner: visitor, room: self.room, counts: $counts };
            self.inner.$name($($argument,)* visitor)
        }
    )*};
}

impl<'de, D: Deserializer<'de>> Deserializer<'de> for Bounded<'_, D> {
    type Error = D::Error;

    forward! {
        deserialize_any() false;
        deserialize_bool() false;
        deserialize_i8() false;
        deserialize_i16() false;
        deserialize_i32() false;
        deserialize_i64() false;
        deserialize_i128() false;
        deserialize_u8() false;
        deserialize_u16() false;
        deserialize_u32() false;
        deserialize_u64() false;
        deserialize_u128() false;
        deserialize_f32() false;
        deserialize_f64() false;
        deserialize_char() false;
        deserialize_str() false;
        deserialize_string() false;
        deserialize_bytes() false;
        deserialize_byte_buf() false;
        deserialize_option() false;
        deserialize_unit() false;
        deserialize_unit_struct(name: &'static str) false;
        deserialize_newtype_struct(name: &'static str) false;
        deserialize_seq() true;
        deserialize_tuple(len: usize) false;
        deserialize_tuple_struct(name: &'static str, len: usize) false;
        deserialize_map() true;
        deserialize_struct(name: &'static str, fields: &'static [&'static str]) false;
        deserialize_enum(name: &'static str, variants: &'static [&'static str]) false;
        deserialize_identifier() false;
        deserialize_ignored_any() false;
    }

    fn is_human_readable(&self) -> bool {
        self.inner.is_human_readable()
    }
}

macro_rules! visit {
    ($($name:ident($type:ty);)*) => {$(
        fn $name<E: Error>(self, value: $type) -> Result<V::Value, E> {
            self.inner.$name(value)
        }
    )*};
}

macro_rules! visit_long {
    ($($name:ident($type:ty);)*) => {$(
        fn $name<E: Error>(self, value: $type) -> Result<V::Value, E> {
            self.room.take(value.len())?;
            self.inner.$name(value)
        }
    )*};
}

impl<'de, V: Visitor<'de>> Visitor<'de> for Bounded<'_, V> {
    type Value = V::Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.expecting(f)
    }

    visit! {
        visit_bool(bool);
        visit_i8(i8);
        visit_i16(i16);
        visit_i32(i32);
        visit_i64(i64);
        visit_i128(i128);
        visit_u8(u8);
        visit_u16(u16);
        visit_u32(u32);
        visit_u64(u64);
        visit_u128(u128);
        visit_f32(f32);
        visit_f64(f64);
        visit_char(char);
    }

    visit_long! {
        visit_str(&str);
        visit_borrowed_str(&'de str);
        visit_string(alloc::string::String);
        visit_bytes(&[u8]);
        visit_borrowed_bytes(&'de [u8]);
        visit_byte_buf(alloc::vec::Vec<u8>);
    }

    fn visit_none<E: Error>(self) -> Result<V::Value, E> {
        self.inner.visit_none()
    }

    fn visit_unit<E: Error>(self) -> Result<V::Value, E> {
        self.inner.visit_unit()
    }

    fn visit_some<D: Deserializer<'de>>(self, inner: D) -> Result<V::Value, D::Error> {
        self.inner.visit_some(Bounded::new(inner, self.room))
    }

    fn visit_newtype_struct<D: Deserializer<'de>>(self, inner: D) -> Result<V::Value, D::Error> {
        self.inner
            .visit_newtype_struct(Bounded::new(inner, self.room))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, inner: A) -> Result<V::Value, A::Error> {
        let Bounded { room, counts, .. } = self;
        self.inner.visit_seq(Bounded {
            inner,
            room,
            counts,
        })
    }

    fn visit_map<A: MapAccess<'de>>(self, inner: A) -> Result<V::Value, A::Error> {
        let Bounded { room, counts, .. } = self;
        self.inner.visit_map(Bounded {
            inner,
            room,
            counts,
        })
    }

    fn visit_enum<A: EnumAccess<'de>>(self, inner: A) -> Result<V::Value, A::Error> {
        self.inner.visit_enum(Bounded::new(inner, self.room))
    }
}

impl<'de, T: DeserializeSeed<'de>> DeserializeSeed<'de> for Bounded<'_, T> {
    type Value = T::Value;

    fn deserialize<D: Deserializer<'de>>(self, inner: D) -> Result<T::Value, D::Error> {
        self.inner.deserialize(Bounded::new(inner, self.room))
    }
}

impl<'de, A: SeqAccess<'de>> SeqAccess<'de> for Bounded<'_, A> {
    type Error = A::Error;

    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, A::Error> {
        let next = self
            .inner
            .next_element_seed(Bounded::new(seed, self.room))?;
        if next.is_some() {
            self.take(size_of::<T::Value>())?;
        }
        Ok(next)
    }

    fn size_hint(&self) -> Option<usize> {
        self.inner.size_hint()
    }
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for Bounded<'_, A> {
    type Error = A::Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, A::Error> {
        let next = self.inner.next_key_seed(Bounded::new(seed, self.room))?;
        if next.is_some() {
            self.take(size_of::<K::Value>())?;
        }
        Ok(next)
    }

    fn next_value_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<T::Value, A::Error> {
        self.take(size_of::<T::Value>())?;
        self.inner.next_value_seed(Bounded::new(seed, self.room))
    }

    fn size_hint(&self) -> Option<usize> {
        self.inner.size_hint()
    }
}

impl<'de, 'r, A: EnumAccess<'de>> EnumAccess<'de> for Bounded<'r, A> {
    type Error = A::Error;
    type Variant = Bounded<'r, A::Variant>;

    fn variant_seed<T: DeserializeSeed<'de>>(
        self,
        seed: T,
    ) -> Result<(T::Value, Self::Variant), A::Error> {
        let (value, variant) = self.inner.variant_seed(Bounded::new(seed, self.room))?;
        Ok((value, Bounded::new(variant, self.room)))
    }
}

impl<'de, A: VariantAccess<'de>> VariantAccess<'de> for Bounded<'_, A> {
    type Error = A::Error;

    fn unit_variant(self) -> Result<(), A::Error> {
        self.inner.unit_variant()
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<T::Value, A::Error> {
        self.inner
            .newtype_variant_seed(Bounded::new(seed, self.room))
    }

    fn tuple_variant<V: Visitor<'de>>(self, len: usize, visitor: V) -> Result<V::Value, A::Error> {
        self.inner
            .tuple_variant(len, Bounded::new(visitor, self.room))
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, A::Error> {
        self.inner
            .struct_variant(fields, Bounded::new(visitor, self.room))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::encode;
    use alloc::collections::BTreeMap;
    use alloc::string::String;
    use alloc::vec;
    use alloc::vec::Vec;

    type Rich = (Vec<Option<(u8, Vec<u64>)>>, BTreeMap<u16, String>, [u32; 3]);

    fn rich() -> Rich {
        let list = vec![None, Some((7, vec![1, 2, 3])), Some((8, vec![]))];
        (list, [(5, "five".into()), (6, "".into())].into(), [1, 2, 3])
    }

    #[test]
    fn what_fits_is_decoded_and_its_size_told() {
        let bytes = encode(&rich());
        let element = size_of::<Option<(u8, Vec<u64>)>>();
        let entries = 2 * (size_of::<u16>() + size_of::<String>());
        let size = 3 * element + 3 * 8 + entries + 4;
        assert_eq!(decode::<Rich>(&bytes, 1 << 20), Ok((rich(), size)));
        assert_eq!(decode::<Rich>(&bytes, size), Ok((rich(), size)));
        for less in 0..size {
            assert_eq!(decode::<Rich>(&bytes, less), Err(Malformed));
        }
        let more = [&bytes[..], &[0]].concat();
        assert_eq!(decode::<Rich>(&more, 1 << 20), Err(Malformed));
    }

    #[test]
    fn a_list_of_nothing_is_not_free() {
        // A million elements of a byte each.
        let bytes = encode(&vec![None::<[u64; 8]>; 1 << 20]);
        assert!(bytes.len() < (1 << 20) + 4);
        let decoded = decode::<Vec<Option<[u64; 8]>>>(&bytes, 16 << 20);
        assert_eq!(decoded.map(|(list, _)| list.len()), Err(Malformed));
    }
}
