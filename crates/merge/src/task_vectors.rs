//! Methods that add changes since a common ancestor ("task vectors"): task arithmetic, TIES, DARE.

use crate::{Strategy, Tensors, blocks::Block, draws::Draws, merge::Kernel, strategy::total, trim::Kept};

/// A sum of weights that is nearer to zero divides nothing.
const LEAST_DIVISOR: f64 = 1e-8;

/// Which elements of the versions' changes count, and how much.
enum Sparsity {
    All,
    /// The largest of each version.
    Largest(Vec<Kept>),
    /// Those drawn, divided by the density.
    Drawn(Draws, f64),
}

/// `base + lambda * (...)`.
pub(crate) fn task_vectors<'a>(strategy: &'a Strategy, tensors: &Tensors<'a>) -> Kernel<'a> {
    let density = strategy.density.unwrap_or(1.0);
    let lambda = strategy.lambda.unwrap_or(1.0);
    let sparsity = match strategy.seed {
        _ if density >= 1.0 => Sparsity::All,
        Some(seed) => {
            let divisor = if strategy.rescale == Some(true) { density } else { 1.0 };
            Sparsity::Drawn(Draws::new(seed, tensors.name, density, tensors.versions.len()), divisor)
        }
        None => Sparsity::Largest(Kept::each(tensors, density)),
    };
    let weight = &strategy.weight;
    let normalize = strategy.normalize == Some(true);
    let elects = strategy.method.elects_signs();
    let all = total(weight);
    let all = if normalize && all.abs() >= LEAST_DIVISOR { all } else { 1.0 };
    Box::new(move |block, out| {
        let mut changes = vec![0.0; weight.len()];
        let mut ties = sparsity.ties(block);
        for (i, out) in out.iter_mut().enumerate() {
            for (version, (change, w)) in changes.iter_mut().zip(weight).enumerate() {
                *change = sparsity.change(block, version, i, &mut ties) * w;
            }
            let mixed = if elects { elected(&changes, weight, normalize) } else { total(&changes) / all };
            *out = block.base[i] + lambda * mixed;
        }
    })
}

impl Sparsity {
    /// For each version, how many elements of exactly the threshold's magnitude are still kept from the block on.
    fn ties(&self, block: &Block) -> Vec<usize> {
        match self {
            Sparsity::Largest(kept) => kept.iter().map(|k| k.ties_left(block.at)).collect(),
            _ => Vec::new(),
        }
    }

    fn change(&self, block: &Block, version: usize, i: usize, ties: &mut [usize]) -> f64 {
        let change = block.change(version, i);
        match self {
            Sparsity::All => change,
            Sparsity::Largest(kept) if kept[version].keeps(change, &mut ties[version]) => change,
            Sparsity::Drawn(draws, divisor) if draws.keeps(version, block.at + i) => change / divisor,
            _ => 0.0,
        }
    }
}

/// The sum of those weighted changes whose sign is that of the sum of all (that of zero is +), divided, if wanted, by
/// the sum of their weights. A NaN among them, or opposed infinities, give NaN.
fn elected(changes: &[f64], weight: &[f64], normalize: bool) -> f64 {
    let sum = total(changes);
    if sum.is_nan() {
        return sum;
    }
    let is_positive = sum >= 0.0;
    let (mut mixed, mut divisor) = (0.0, 0.0);
    for (change, w) in changes.iter().zip(weight) {
        if if is_positive { *change > 0.0 } else { *change < 0.0 } {
            mixed += change;
            divisor += w;
        }
    }
    if normalize && divisor != 0.0 { mixed / divisor } else { mixed }
}
