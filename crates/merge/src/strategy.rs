//! Methods of merging and their parameters, with mergekit's names and defaults.

use crate::MergeError;
use serde::{Deserialize, Serialize};

/// How the weights of several versions become one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Method {
    /// `(x_1 + x_2 + ...) / n`, summed in order: the uniform soup of Wortsman et al., "Model soups" (2022).
    Average,
    /// `(w_1 x_1 + w_2 x_2 + ...) / (w_1 + w_2 + ...)`, summed in order (mergekit's `linear`); without `normalize`
    /// nothing is divided.
    Weighted,
    /// Spherical interpolation of two versions, by the angle between the tensors as vectors: `sin((1 - t) a) / sin(a)`
    /// of the first and `sin(t a) / sin(a)` of the second. Where the cosine's magnitude is above 0.9995, or an element
    /// is not finite, `(1 - t) x_1 + t x_2`.
    Slerp,
    /// `base + lambda (w_1 (x_1 - base) + ...)`: Ilharco et al., "Editing models with task arithmetic" (2023).
    TaskArithmetic,
    /// Task vectors trimmed to the largest, a sign elected for each element, and the mean of those that have it:
    /// Yadav et al., "TIES-Merging" (2023).
    Ties,
    /// Task arithmetic over task vectors of which elements are dropped at random, the others divided by the density:
    /// Yu et al., "Language models are super Mario" (2024).
    #[serde(alias = "dare")]
    DareLinear,
    /// As `DareLinear`, with the signs elected as by `Ties`.
    DareTies,
}

impl Method {
    /// Every method.
    pub const ALL: [Method; 7] = {
        use Method::*;
        [Average, Weighted, Slerp, TaskArithmetic, Ties, DareLinear, DareTies]
    };

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Method::Average => "average",
            Method::Weighted => "weighted",
            Method::Slerp => "slerp",
            Method::TaskArithmetic => "task-arithmetic",
            Method::Ties => "ties",
            Method::DareLinear => "dare-linear",
            Method::DareTies => "dare-ties",
        }
    }

    /// The method of this name, or of mergekit's name for it.
    pub fn from_name(name: &str) -> Option<Method> {
        let name = name.replace('_', "-");
        match name.as_str() {
            "linear" => Some(Method::Weighted),
            "dare" => Some(Method::DareLinear),
            _ => Method::ALL.into_iter().find(|m| m.name() == name),
        }
    }

    /// Whether it starts from a common ancestor.
    pub const fn needs_base(self) -> bool {
        matches!(self, Method::TaskArithmetic | Method::Ties | Method::DareLinear | Method::DareTies)
    }

    /// Whether it drops elements at random.
    pub const fn draws(self) -> bool {
        matches!(self, Method::DareLinear | Method::DareTies)
    }

    /// Whether it elects a sign for each element.
    pub const fn elects_signs(self) -> bool {
        matches!(self, Method::Ties | Method::DareTies)
    }

    const fn has_density(self) -> bool {
        self.draws() || matches!(self, Method::Ties)
    }

    const fn has_weights(self) -> bool {
        !matches!(self, Method::Average | Method::Slerp)
    }
}

/// A method with its parameters. What is `None` has its default.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Strategy {
    /// The method.
    pub method: Method,
    /// A factor for each version, in their order; 1 each where there is none. The average and slerp have none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub weight: Vec<f64>,
    /// Share of the elements of a task vector that is kept, 0..=1 (not 0 for DARE); 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub density: Option<f64>,
    /// Whether the sum is divided by that of the weights: of all, or of those with the elected sign. True for
    /// `Weighted` and `Ties`, else false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub normalize: Option<bool>,
    /// Whether what DARE keeps is divided by the density; true.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rescale: Option<bool>,
    /// Factor of what is added to the base; 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lambda: Option<f64>,
    /// Slerp's place between the first version (0) and the second (1); 0.5.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub t: Option<f64>,
    /// Seed of DARE's draws; 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
}

impl Strategy {
    /// A method with its defaults.
    pub const fn new(method: Method) -> Strategy {
        Strategy {
            method,
            weight: Vec::new(),
            density: None,
            normalize: None,
            rescale: None,
            lambda: None,
            t: None,
            seed: None,
        }
    }

    /// The strategy for so many versions with nothing left to defaults, so that it means the same for ever.
    ///
    /// # Errors
    /// The method takes another number of versions or weights, has no such parameter, or not this value of it.
    pub fn resolved(&self, versions: usize) -> Result<Strategy, MergeError> {
        let method = self.method;
        match method {
            Method::Slerp if versions != 2 => return Err(self.versions("two", versions)),
            _ if versions == 0 => return Err(self.versions("at least one", versions)),
            _ => {}
        }
        let weight = if method.has_weights() { self.weights(versions)? } else { Vec::new() };
        self.refuse("weight", !self.weight.is_empty() && !method.has_weights())?;
        let density = self.parameter("density", self.density, method.has_density(), 1.0)?;
        if let Some(value) = density.filter(|d| !(0.0..=1.0).contains(d) || (*d == 0.0 && method.draws())) {
            return Err(MergeError::Parameter { parameter: "density", value, range: "above 0, up to 1" });
        }
        let t = self.parameter("t", self.t, method == Method::Slerp, 0.5)?;
        if let Some(value) = t.filter(|t| !(0.0..=1.0).contains(t)) {
            return Err(MergeError::Parameter { parameter: "t", value, range: "from 0 to 1" });
        }
        let lambda = self.parameter("lambda", self.lambda, method.needs_base(), 1.0)?;
        if let Some(value) = lambda.filter(|l| !l.is_finite()) {
            return Err(MergeError::Parameter { parameter: "lambda", value, range: "among finite numbers" });
        }
        let divides = matches!(method, Method::Weighted | Method::Ties);
        let normalize = self.parameter("normalize", self.normalize, method.has_weights(), divides)?;
        if method == Method::Weighted && normalize == Some(true) && total(&weight) == 0.0 {
            return Err(MergeError::ZeroWeights);
        }
        let rescale = self.parameter("rescale", self.rescale, method.draws(), true)?;
        let seed = self.parameter("seed", self.seed, method.draws(), 0)?;
        Ok(Strategy { method, weight, density, normalize, rescale, lambda, t, seed })
    }

    /// The same, without the parameters that the method does not have.
    #[must_use]
    pub fn without_unused(mut self) -> Strategy {
        let method = self.method;
        if !method.has_weights() {
            self.weight.clear();
        }
        self.density = self.density.filter(|_| method.has_density());
        self.normalize = self.normalize.filter(|_| method.has_weights());
        self.rescale = self.rescale.filter(|_| method.draws());
        self.lambda = self.lambda.filter(|_| method.needs_base());
        self.t = self.t.filter(|_| method == Method::Slerp);
        self.seed = self.seed.filter(|_| method.draws());
        self
    }

    /// Whether the result is what all versions (and the base, if the method has one) hold, where that is the same.
    pub fn keeps_equal(&self) -> bool {
        self.method != Method::Weighted || self.normalize != Some(false)
    }

    fn weights(&self, versions: usize) -> Result<Vec<f64>, MergeError> {
        if self.weight.is_empty() {
            return Ok(vec![1.0; versions]);
        }
        if self.weight.len() != versions {
            return Err(MergeError::Weights { weights: self.weight.len(), versions });
        }
        match self.weight.iter().find(|w| !w.is_finite()) {
            Some(&value) => Err(MergeError::Parameter { parameter: "weight", value, range: "among finite numbers" }),
            None => Ok(self.weight.clone()),
        }
    }

    fn versions(&self, takes: &'static str, given: usize) -> MergeError {
        MergeError::Versions { method: self.method.name(), takes, given }
    }

    fn refuse(&self, parameter: &'static str, given: bool) -> Result<(), MergeError> {
        if given { Err(MergeError::Unused { method: self.method.name(), parameter }) } else { Ok(()) }
    }

    fn parameter<T>(
        &self,
        name: &'static str,
        given: Option<T>,
        has: bool,
        default: T,
    ) -> Result<Option<T>, MergeError> {
        self.refuse(name, given.is_some() && !has)?;
        Ok(has.then(|| given.unwrap_or(default)))
    }
}

/// The sum, in order.
pub(crate) fn total(weights: &[f64]) -> f64 {
    weights.iter().copied().reduce(|a, b| a + b).unwrap_or(0.0)
}
