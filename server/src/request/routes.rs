//! Route table: every route is registered with the right that it needs.

use crate::app::App;
use axum::{
    Router,
    extract::Request,
    handler::Handler,
    response::IntoResponse,
    routing::{Route as AxumRoute, delete, get, post, put},
};
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::{convert::Infallible, fmt};
use tower::{Layer, Service};
use utoipa::openapi::{OpenApi as Document, PathItem, extensions::Extensions, path::Operation};
use utoipa_axum::router::UtoipaMethodRouter;

/// OpenAPI extension field with the right that an operation needs.
const FIELD: &str = "x-needs";

/// The right that a route checks before anything else. Its name is fixed: it stands in the OpenAPI document.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Need {
    /// Nothing; tokens are not even looked at.
    Nothing,
    /// Nothing, but a token that is sent must be valid; lists hold what the caller may read.
    Anyone,
    /// A token.
    Known,
    /// The right to read the repository of the path.
    Read,
    /// The right to write to the repository of the path.
    Write,
    /// The right to write to the repository of the path, or a signed link made for a token that has it.
    WriteOrLink,
    /// The right to administer the repository of the path.
    Admin,
    /// The right to administer the repository that the body names.
    AdminOfNamed,
}

/// One method of one path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// The method; GET answers HEAD as well.
    pub method: &'static str,
    /// The path, with `{parameters}` and at its end perhaps `{*rest}`.
    pub path: String,
    /// The right it needs; none: the OpenAPI document does not say, which a test refuses.
    pub need: Option<Need>,
}

impl fmt::Display for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} ", self.method, self.path)?;
        match self.need {
            Some(need) => need.serialize(f),
            None => f.write_str("?"),
        }
    }
}

/// Routes and the list of them.
#[derive(Debug, Default)]
pub struct Routes {
    router: Router<App>,
    list: Vec<Route>,
}

macro_rules! methods {
    ($($name:ident $method:literal),*) => {$(
        #[doc = concat!("Adds ", $method, " of a path.")]
        pub fn $name<H, T>(mut self, need: Need, path: &str, handler: H) -> Routes
        where
            H: Handler<T, App>,
            T: 'static,
        {
            self.router = self.router.route(path, $name(handler));
            self.list.push(Route { method: $method, path: path.to_owned(), need: Some(need) });
            self
        }
    )*};
}

impl Routes {
    /// No routes.
    pub fn new() -> Routes {
        Routes::default()
    }

    /// The routes that a document describes.
    pub fn described(router: Router<App>, document: &Document) -> Routes {
        let paths = document.paths.paths.iter();
        let list = paths.flat_map(|(path, item)| {
            operations(item).map(|(method, operation)| Route { method, path: path.clone(), need: need_of(operation) })
        });
        Routes { list: list.collect(), router }
    }

    methods!(get "GET", post "POST", put "PUT", delete "DELETE");

    /// These and the others.
    pub fn merge(mut self, other: Routes) -> Routes {
        self.list.extend(other.list);
        self.router = self.router.merge(other.router);
        self
    }

    /// With a layer around all of them.
    pub fn layer<L>(mut self, layer: L) -> Routes
    where
        L: Layer<AxumRoute> + Clone + Send + Sync + 'static,
        L::Service: Service<Request> + Clone + Send + Sync + 'static,
        <L::Service as Service<Request>>::Response: IntoResponse + 'static,
        <L::Service as Service<Request>>::Error: Into<Infallible> + 'static,
        <L::Service as Service<Request>>::Future: Send + 'static,
    {
        self.router = self.router.layer(layer);
        self
    }

    /// The list.
    pub fn list(&self) -> &[Route] {
        &self.list
    }

    /// As axum serves them.
    pub fn into_router(self) -> Router<App> {
        self.router
    }
}

/// Adds the needed right to described routes.
pub trait Needs {
    /// With this need, in the document too.
    #[must_use]
    fn needs(self, need: Need) -> Self;
}

impl Needs for UtoipaMethodRouter<App> {
    fn needs(mut self, need: Need) -> Self {
        for operation in self.1.paths.values_mut().flat_map(operations_mut) {
            let extensions = operation.extensions.get_or_insert_with(Extensions::default);
            extensions.insert(FIELD.to_owned(), json!(need));
        }
        self
    }
}

/// The operations of a path.
pub(crate) fn operations_mut(item: &mut PathItem) -> impl Iterator<Item = &mut Operation> {
    let all = [&mut item.get, &mut item.head, &mut item.post, &mut item.put, &mut item.patch, &mut item.delete];
    all.into_iter().flatten()
}

fn operations(item: &PathItem) -> impl Iterator<Item = (&'static str, &Operation)> {
    let all = [
        ("GET", &item.get),
        ("HEAD", &item.head),
        ("POST", &item.post),
        ("PUT", &item.put),
        ("PATCH", &item.patch),
        ("DELETE", &item.delete),
        ("OPTIONS", &item.options),
        ("TRACE", &item.trace),
    ];
    all.into_iter().filter_map(|(method, operation)| Some((method, operation.as_ref()?)))
}

fn need_of(operation: &Operation) -> Option<Need> {
    Need::deserialize(operation.extensions.as_ref()?.get(FIELD)?).ok()
}
