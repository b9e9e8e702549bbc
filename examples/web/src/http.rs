//! The service of axum: `GET /KIND/NUMBER`, over HTTP/1.1 or HTTP/2, whatever the client speaks; `GET /` is answered at once.

use axum::Router;
use axum::extract::Path;
use axum::routing::get;
use axum::serve::ListenerExt;
use tokio::net::TcpListener;

use crate::Result;
use crate::handler::handle;

/// Serves until the program is killed.
pub(crate) async fn serve(listener: TcpListener) -> Result<()> {
    let app = Router::new()
        .route("/{kind}/{number}", get(work))
        .route("/", get(async || "at once"));
    // Else an answer may wait until the client, which has nothing to send, acknowledges what came before: some 40 ms.
    let listener = listener.tap_io(|stream| _ = stream.set_nodelay(true));
    Ok(axum::serve(listener, app).await?)
}

async fn work(Path((kind, number)): Path<(String, u64)>) -> String {
    let [begin, waits, came, end] = handle(&kind, number).await;
    format!("{begin} {waits} {came} {end}")
}
