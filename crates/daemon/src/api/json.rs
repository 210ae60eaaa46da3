//! JSON bodies of requests and responses.

use axum::extract::{FromRequest, Request};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use serde::de::DeserializeOwned;
use sluice_config::text::to_json;

/// A JSON body. In responses, characters that a terminal would interpret are escaped.
pub(super) struct Json<T>(pub(super) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for Json<T> {
    type Rejection = <axum::Json<T> as FromRequest<S>>::Rejection;

    async fn from_request(request: Request, state: &S) -> Result<Self, Self::Rejection> {
        axum::Json::from_request(request, state)
            .await
            .map(|axum::Json(body)| Self(body))
    }
}

impl<T: Serialize> IntoResponse for Json<T> {
    fn into_response(self) -> Response {
        match to_json(&self.0) {
            Ok(text) => {
                let kind = HeaderValue::from_static("application/json");
                ([(header::CONTENT_TYPE, kind)], text).into_response()
            }
            Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn answer_has_nothing_that_acts_on_a_terminal_and_is_read_back_as_it_was() {
        let hostile = "a\u{1b}[2J\n\u{7f}\u{9b}\u{202e}\u{2028}\u{e0041}";
        let response = Json(vec![hostile]).into_response();
        assert_eq!("application/json", response.headers()[header::CONTENT_TYPE]);
        let body = axum::body::to_bytes(response.into_body(), 1_000).await.unwrap();
        let text = std::str::from_utf8(&body).unwrap();
        assert!(!text.chars().any(sluice_config::text::is_hidden), "{text:?}");
        assert_eq!(vec![hostile], serde_json::from_str::<Vec<String>>(text).unwrap());
    }
}
