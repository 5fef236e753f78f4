//! Shared by the libFuzzer binaries: the target, and a mutator that mends what it changed.

use mdl_fuzz::mutate::{Random, insert};

pub use libfuzzer_sys;

/// Mutates as libFuzzer does, now and then with a word, and mends three times out of four.
pub fn mutate(
    words: &[&[u8]],
    mend: fn(&mut Vec<u8>),
    data: &mut [u8],
    size: usize,
    max_size: usize,
    seed: u32,
) -> usize {
    let mut random = Random::new(u64::from(seed));
    let size = libfuzzer_sys::fuzzer_mutate(data, size, max_size);
    let mut input = data[..size].to_vec();
    if !words.is_empty() && random.once_in(6) {
        let at = random.below(input.len() + 1);
        insert(&mut input, at, words[random.below(words.len())]);
    }
    if !random.once_in(4) {
        mend(&mut input);
    }
    // What does not fit is what libFuzzer made of it.
    if input.len() > max_size || input.is_empty() {
        return size;
    }
    data[..input.len()].copy_from_slice(&input);
    input.len()
}

/// The entry points of a binary for this target.
#[macro_export]
macro_rules! target {
    ($name:ident) => {
        $crate::libfuzzer_sys::fuzz_target!(|data: &[u8]| mdl_fuzz::$name(data));

        $crate::libfuzzer_sys::fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| {
            $crate::mutate(
                mdl_fuzz::mend::words::for_target(stringify!($name)),
                mdl_fuzz::mend::$name,
                data,
                size,
                max_size,
                seed,
            )
        });
    };
}
