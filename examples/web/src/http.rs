//! The service of axum: `GET /NUMBER`, over HTTP/1.1 or HTTP/2, whatever the client speaks; `GET /` is answered at once.

use axum::Router;
use axum::extract::Path;
use axum::routing::get;
use tokio::net::TcpListener;

use crate::{Result, handle};

/// Serves until the program is killed.
pub(crate) async fn serve(listener: TcpListener) -> Result<()> {
    let app = Router::new()
        .route("/{number}", get(work))
        .route("/", get(async || "at once"));
    Ok(axum::serve(listener, app).await?)
}

async fn work(Path(number): Path<u64>) -> String {
    let (begin, end) = handle(number).await;
    format!("{begin} {end}")
}
