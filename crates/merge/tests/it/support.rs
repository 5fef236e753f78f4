//! Tensors and strategies for the tests.

use mdl_merge::{Method, Strategy, Tensors, merge};

pub fn f32s(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|v| v.to_le_bytes()).collect()
}

pub fn to_f32s(bytes: &[u8]) -> Vec<f32> {
    bytes.as_chunks::<4>().0.iter().map(|b| f32::from_le_bytes(*b)).collect()
}

/// Weights of a bell-like spread, `n` of them.
pub fn noise(seed: u64, n: usize) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut draw = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f32 / (1 << 24) as f32 - 0.5
    };
    (0..n).map(|_| draw() + draw() + draw() * 0.1).collect()
}

/// What merging tensors of f32 gives.
pub fn merge_f32(strategy: &Strategy, base: Option<&[f32]>, versions: &[&[f32]]) -> Vec<f32> {
    let base = base.map(f32s);
    let versions: Vec<Vec<u8>> = versions.iter().map(|v| f32s(v)).collect();
    let versions: Vec<&[u8]> = versions.iter().map(Vec::as_slice).collect();
    let dtype = mdl_codec::Dtype::F32;
    let tensors = Tensors { name: "w", dtype, base: base.as_deref(), versions: &versions };
    to_f32s(&merge(strategy, &tensors).expect("these can be merged"))
}

/// Every method, with parameters under which it does all that it does.
pub fn strategies() -> Vec<Strategy> {
    Method::ALL
        .into_iter()
        .map(|method| {
            let mut strategy = Strategy::new(method);
            strategy.density = (method.draws() || method == Method::Ties).then_some(0.4);
            strategy.seed = method.draws().then_some(7);
            strategy.t = (method == Method::Slerp).then_some(0.3);
            let is_weighted = !matches!(method, Method::Average | Method::Slerp);
            strategy.weight = if is_weighted { vec![0.75, 0.5] } else { Vec::new() };
            strategy
        })
        .collect()
}
