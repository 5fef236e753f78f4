//! DARE's draws: a number for each element, made from seed, tensor, version and place alone, so that any thread can
//! make any of them.

/// Golden ratio, as 64 bits after the point: the step of SplitMix64.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// The draws for one tensor.
pub(crate) struct Draws {
    density: f64,
    /// For each version.
    keys: Vec<u64>,
}

impl Draws {
    /// The first 8 bytes of the BLAKE3 hash of seed, version (little-endian u64 each) and name are a version's key.
    pub(crate) fn new(seed: u64, name: &str, density: f64, versions: usize) -> Draws {
        let key = |version: u64| {
            let mut hasher = blake3::Hasher::new_derive_key("mdl 2026-11-24 dare v1");
            hasher.update(&seed.to_le_bytes()).update(&version.to_le_bytes()).update(name.as_bytes());
            hasher.finalize().as_bytes().first_chunk::<8>().map_or(0, |b| u64::from_le_bytes(*b))
        };
        Draws { density, keys: (0..versions as u64).map(key).collect() }
    }

    /// Whether an element is kept: its number in 0..1, of 53 bits, is below the density.
    pub(crate) fn keeps(&self, version: usize, place: usize) -> bool {
        let bits = mix(self.keys[version].wrapping_add(STEP.wrapping_mul(place as u64 + 1)));
        ((bits >> 11) as f64) * (1.0 / (1u64 << 53) as f64) < self.density
    }
}

/// SplitMix64's output function (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014).
fn mix(state: u64) -> u64 {
    let z = (state ^ state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}
