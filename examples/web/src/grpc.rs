//! The service of tonic, and its client: `/web.Web/KIND` takes a number and gives four. There is no protobuf in it: a
//! number is its eight bytes.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use axum::http::uri::PathAndQuery;
use axum::http::{Request as HttpRequest, Response as HttpResponse};
use bytes::{Buf, BufMut};
use tokio::net::TcpListener;
use tonic::body::Body;
use tonic::client;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::codegen::Service;
use tonic::server::{self, NamedService};
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Channel, Server};
use tonic::{Request, Response, Status};

use crate::Result;
use crate::handler::handle;

/// Serves until the program is killed.
pub(crate) async fn serve(listener: TcpListener) -> Result<()> {
    let server = Server::builder().add_service(Web);
    Ok(server
        .serve_with_incoming(TcpIncoming::from(listener).with_nodelay(Some(true)))
        .await?)
}

/// One call, on a connection that others may use meanwhile.
pub(crate) async fn call(channel: Channel, kind: &str, number: u64) -> Result<Vec<u64>> {
    let mut client = client::Grpc::new(channel);
    client.ready().await?;
    let path = PathAndQuery::try_from(format!("/web.Web/{kind}"))?;
    let request = Request::new(vec![number]);
    Ok(client.unary(request, path, Numbers).await?.into_inner())
}

#[derive(Clone)]
struct Web;

impl NamedService for Web {
    const NAME: &'static str = "web.Web";
}

/// A future of a service.
type Answer<T, E> = Pin<Box<dyn Future<Output = std::result::Result<T, E>> + Send>>;

impl Service<HttpRequest<Body>> for Web {
    type Response = HttpResponse<Body>;
    type Error = Infallible;
    type Future = Answer<Self::Response, Infallible>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<std::result::Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: HttpRequest<Body>) -> Self::Future {
        let path = request.uri().path();
        let work = Work(path.trim_start_matches("/web.Web/").to_owned());
        Box::pin(async { Ok(server::Grpc::new(Numbers).unary(work, request).await) })
    }
}

/// A method: a kind of handler.
struct Work(String);

impl Service<Request<Vec<u64>>> for Work {
    type Response = Response<Vec<u64>>;
    type Error = Status;
    type Future = Answer<Self::Response, Status>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<std::result::Result<(), Status>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Vec<u64>>) -> Self::Future {
        let kind = self.0.clone();
        Box::pin(async move {
            let number = request.into_inner().first().copied().unwrap_or_default();
            let clocks = handle(&kind, number).await;
            Ok(Response::new(clocks.to_vec()))
        })
    }
}

/// How messages are written.
#[derive(Clone, Copy, Default)]
struct Numbers;

impl Codec for Numbers {
    type Encode = Vec<u64>;
    type Decode = Vec<u64>;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        Self
    }

    fn decoder(&mut self) -> Self {
        Self
    }
}

impl Encoder for Numbers {
    type Item = Vec<u64>;
    type Error = Status;

    fn encode(
        &mut self,
        numbers: Vec<u64>,
        to: &mut EncodeBuf<'_>,
    ) -> std::result::Result<(), Status> {
        for number in numbers {
            to.put_u64(number);
        }
        Ok(())
    }
}

impl Decoder for Numbers {
    type Item = Vec<u64>;
    type Error = Status;

    fn decode(
        &mut self,
        from: &mut DecodeBuf<'_>,
    ) -> std::result::Result<Option<Vec<u64>>, Status> {
        let mut numbers = Vec::new();
        while from.remaining() >= 8 {
            numbers.push(from.get_u64());
        }
        Ok(Some(numbers))
    }
}
