//! ISA-L, Intel's library in C and assembler, where it is installed: loaded at run time, so that
//! nobody needs it to build or to measure the others.

use super::others::{Coder, encoded, recovered};
use bytes::Bytes;
use fermata_codec::Undecodable;
use libloading::Library;
use std::ffi::c_int;
use std::sync::Mutex;

/// Names under which the system's loader may find it.
const NAMES: [&str; 3] = ["libisal.so.2", "libisal.so", "libisal.dylib"];

type Matrix = unsafe extern "C" fn(*mut u8, c_int, c_int);
type Tables = unsafe extern "C" fn(c_int, c_int, *const u8, *mut u8);
type Invert = unsafe extern "C" fn(*mut u8, *mut u8, c_int) -> c_int;
type Product =
    unsafe extern "C" fn(c_int, c_int, c_int, *const u8, *const *const u8, *const *mut u8);

/// The library, with one code's matrix and tables.
pub(crate) struct Isal {
    n: usize,
    l: usize,
    matrix: Vec<u8>,
    encoding: Vec<u8>,
    /// The last pattern of fragments and its tables.
    decoding: Mutex<Option<(Vec<bool>, Vec<u8>)>>,
    tables: Tables,
    invert: Invert,
    product: Product,
    /// Last: what the functions above live in.
    _library: Library,
}

impl Isal {
    /// The code, if the library is installed.
    pub(crate) fn new(n: usize, l: usize) -> Option<Isal> {
        // SAFETY: loading runs the library's initializers: ISA-L has none that do anything but
        // choose its functions by the processor.
        #[allow(unsafe_code)]
        let library = NAMES
            .iter()
            .find_map(|name| unsafe { Library::new(name) }.ok())?;
        // SAFETY: the types are those of `erasure_code.h`, the same in all its versions.
        #[allow(unsafe_code)]
        let (cauchy, tables, invert, product) = unsafe {
            (
                *library.get::<Matrix>(b"gf_gen_cauchy1_matrix").ok()?,
                *library.get::<Tables>(b"ec_init_tables").ok()?,
                *library.get::<Invert>(b"gf_invert_matrix").ok()?,
                *library.get::<Product>(b"ec_encode_data").ok()?,
            )
        };
        let mut matrix = vec![0; n * l];
        // SAFETY: the matrix has n rows of l bytes.
        #[allow(unsafe_code)]
        unsafe {
            cauchy(matrix.as_mut_ptr(), n as c_int, l as c_int);
        }
        let mut isal = Isal {
            n,
            l,
            encoding: Vec::new(),
            matrix,
            decoding: Mutex::new(None),
            tables,
            invert,
            product,
            _library: library,
        };
        isal.encoding = isal.tables_of(&isal.matrix[l * l..]);
        Some(isal)
    }

    /// The tables of some rows of a matrix.
    fn tables_of(&self, rows: &[u8]) -> Vec<u8> {
        let mut tables = vec![0; 32 * rows.len()];
        let count = (rows.len() / self.l) as c_int;
        // SAFETY: 32 bytes for each byte of `count` rows of l.
        #[allow(unsafe_code)]
        unsafe {
            (self.tables)(self.l as c_int, count, rows.as_ptr(), tables.as_mut_ptr());
        }
        tables
    }

    /// Multiplies rows of data by the matrix that the tables are of.
    fn multiply(&self, tables: &[u8], data: &[&[u8]], out: &mut [&mut [u8]]) {
        let width = data[0].len();
        assert!(data.len() == self.l && tables.len() == 32 * self.l * out.len());
        assert!(data.iter().all(|row| row.len() == width));
        assert!(out.iter().all(|row| row.len() == width));
        let data: Vec<*const u8> = data.iter().map(|row| row.as_ptr()).collect();
        let rows: Vec<*mut u8> = out.iter_mut().map(|row| row.as_mut_ptr()).collect();
        let (length, l, count) = (width as c_int, self.l as c_int, rows.len() as c_int);
        // SAFETY: all rows have `width` bytes, and the tables are for l times `count` of them.
        #[allow(unsafe_code)]
        unsafe {
            (self.product)(
                length,
                l,
                count,
                tables.as_ptr(),
                data.as_ptr(),
                rows.as_ptr(),
            );
        }
    }

    /// The tables that give the lost rows of the value from the first l fragments that are present.
    fn plan(&self, present: &[bool]) -> Vec<u8> {
        let l = self.l;
        let used = (0..self.n).filter(|i| present[*i]).take(l);
        let mut matrix: Vec<u8> = used
            .flat_map(|i| self.matrix[i * l..(i + 1) * l].to_vec())
            .collect();
        let mut inverse = vec![0; l * l];
        // SAFETY: both have l rows of l bytes.
        #[allow(unsafe_code)]
        let singular =
            unsafe { (self.invert)(matrix.as_mut_ptr(), inverse.as_mut_ptr(), l as c_int) };
        assert_eq!(singular, 0, "any l rows of a Cauchy matrix can be inverted");
        let lost = (0..l).filter(|i| !present[*i]);
        let rows: Vec<u8> = lost
            .flat_map(|i| inverse[i * l..(i + 1) * l].to_vec())
            .collect();
        self.tables_of(&rows)
    }
}

impl Coder for Isal {
    fn encode_all(&self, value: &Bytes) -> Vec<Bytes> {
        encoded((self.n, self.l), value, |data, parities| {
            let mut rows: Vec<&mut [u8]> = parities.iter_mut().map(|row| &mut row[..]).collect();
            self.multiply(&self.encoding, data, &mut rows);
        })
    }

    fn decode(&self, length: u64, parts: &[(usize, Bytes)]) -> Result<Bytes, Undecodable> {
        recovered((self.n, self.l), length, parts, |present, given, lost| {
            if lost.is_empty() {
                return;
            }
            let mut plan = self.decoding.lock().expect("one thread");
            if plan.as_ref().is_none_or(|(pattern, _)| pattern != present) {
                *plan = Some((present.to_vec(), self.plan(present)));
            }
            let (_, tables) = plan.as_ref().expect("just made");
            let used: Vec<&[u8]> = given.iter().flatten().take(self.l).copied().collect();
            self.multiply(tables, &used, lost);
        })
    }
}
