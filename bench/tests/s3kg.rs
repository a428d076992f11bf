//! The S3 load generator against a gateway that holds a map, and against one that lies.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use ozone_bench::drive::Processes;
use ozone_bench::s3kg::{self, Mix, Options};
use ozone_bench::{KeySpace, Load, Report};
use ozone_common::config::ByteSize;
use parking_lot::Mutex;
use tokio::net::TcpListener;

#[derive(Default)]
struct Gateway {
    objects: Mutex<BTreeMap<String, Bytes>>,
    /// Every object read is changed in its last byte.
    lies: bool,
}

impl Gateway {
    async fn serve(self: Arc<Self>) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let gateway = self.clone();
                let service = service_fn(move |request| {
                    let gateway = gateway.clone();
                    async move { Ok::<_, Infallible>(gateway.answer(request).await) }
                });
                tokio::spawn(
                    hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service),
                );
            }
        });
        endpoint
    }

    async fn answer(&self, request: Request<Incoming>) -> Response<Full<Bytes>> {
        let (head, body) = request.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        assert!(head.headers["authorization"].to_str().unwrap().starts_with("AWS4-HMAC-SHA256 Credential=me/"));
        let path = head.uri.path().strip_prefix("/buck").unwrap();
        let query = head.uri.query().unwrap_or_default();
        let respond = |status: StatusCode, body: Bytes| {
            Response::builder().status(status).header("content-length", body.len()).body(Full::new(body)).unwrap()
        };
        let mut objects = self.objects.lock();
        match (head.method, path.strip_prefix('/').unwrap_or_default()) {
            (Method::PUT, "") => respond(StatusCode::CONFLICT, Bytes::new()),
            (Method::PUT, key) => {
                objects.insert(key.to_owned(), body);
                respond(StatusCode::OK, Bytes::new())
            }
            (Method::GET, "") => respond(StatusCode::OK, page(&objects, query).into()),
            (method @ (Method::GET | Method::HEAD), key) => match objects.get(key) {
                None => respond(StatusCode::NOT_FOUND, Bytes::from_static(b"<Error><Code>NoSuchKey</Code></Error>")),
                Some(object) if method == Method::HEAD => {
                    Response::builder().header("content-length", object.len()).body(Full::default()).unwrap()
                }
                Some(object) => {
                    let mut bytes = object.to_vec();
                    if self.lies {
                        *bytes.last_mut().unwrap() ^= 1;
                    }
                    respond(StatusCode::OK, bytes.into())
                }
            },
            (Method::DELETE, key) => {
                objects.remove(key);
                respond(StatusCode::NO_CONTENT, Bytes::new())
            }
            (Method::POST, "") => {
                let text = String::from_utf8(body.to_vec()).unwrap();
                for key in text.split("<Key>").skip(1).map(|rest| rest.split("</Key>").next().unwrap()) {
                    objects.remove(key);
                }
                respond(StatusCode::OK, Bytes::from_static(b"<DeleteResult></DeleteResult>"))
            }
            (method, key) => panic!("{method} of `{key}`"),
        }
    }
}

/// Ten keys a page, whatever is asked for; the token is the last key.
fn page(objects: &BTreeMap<String, Bytes>, query: &str) -> String {
    let after =
        query.strip_prefix("continuation-token=").map(|rest| rest.split('&').next().unwrap().replace("%2F", "/"));
    let all: Vec<_> = objects.keys().filter(|key| after.as_ref().is_none_or(|after| *key > after)).collect();
    let keys: String = all.iter().take(10).map(|key| format!("<Contents><Key>{key}</Key></Contents>")).collect();
    let more = match all.get(9) {
        Some(last) if all.len() > 10 => {
            format!("<IsTruncated>true</IsTruncated><NextContinuationToken>{last}</NextContinuationToken>")
        }
        _ => "<IsTruncated>false</IsTruncated>".into(),
    };
    format!("<ListBucketResult>{more}{keys}</ListBucketResult>")
}

async fn run(endpoint: &str, mix: &str, number_of_tests: u64, keys: u64) -> anyhow::Result<Report> {
    let load = Load { threads: 4, number_of_tests, duration: None, pids: Processes::default(), errors_max: 1000 };
    let space = KeySpace { prefix: "p".into(), size: ByteSize(5000), seed: 1 };
    let options = Options {
        endpoint: endpoint.to_owned(),
        bucket: "buck".into(),
        mix: Mix::parse(mix)?,
        keys,
        validate: true,
        unsigned_payload: false,
        access_key: "me".into(),
        secret_key: "secret".into(),
        region: "us-east-1".into(),
    };
    s3kg::run(&load, &space, &options, |_| {}).await
}

#[tokio::test]
async fn every_kind_of_request_does_what_it_says() {
    let gateway = Arc::new(Gateway::default());
    let endpoint = gateway.clone().serve().await;
    let count = |report: &Report, name: &str| {
        let found = report.operations.iter().find(|operation| operation.name == name);
        found.map_or((0, 0), |operation| (operation.count, operation.items))
    };

    let report = run(&endpoint, "put", 100, 0).await.unwrap();
    assert_eq!((report.errors, count(&report, "PUT")), (0, (100, 100)), "{:?}", report.first_errors);
    assert_eq!(gateway.objects.lock().keys().last().unwrap(), "p/0000000099");

    let report = run(&endpoint, "get=1,head=1", 200, 100).await.unwrap();
    assert_eq!((report.errors, count(&report, "ALL").0), (0, 200), "{:?}", report.first_errors);

    // Four workers, each from the beginning: at least 20 of 100 keys in two pages of ten.
    let report = run(&endpoint, "list", 40, 0).await.unwrap();
    assert_eq!((report.errors, count(&report, "LIST")), (0, (40, 400)), "{:?}", report.first_errors);

    // Deletes have the lower half, reads the upper one: nothing is missed, and the run ends where nothing is left to delete.
    let report = run(&endpoint, "delete=9,get=1", 10_000, 100).await.unwrap();
    assert_eq!((report.errors, count(&report, "DELETE")), (0, (50, 50)), "{:?}", report.first_errors);
    assert_eq!(gateway.objects.lock().keys().next().unwrap(), "p/0000000050");

    let report = run(&endpoint, "delete-many", 10_000, 100).await.unwrap();
    assert_eq!((report.errors, count(&report, "DELETE-MANY")), (0, (1, 100)));
    assert!(gateway.objects.lock().is_empty());

    let report = run(&endpoint, "get", 10, 100).await.unwrap();
    assert_eq!(report.errors, 10, "what is gone is an error");
    assert!(report.first_errors[0].contains("NoSuchKey"), "{:?}", report.first_errors);
    assert!(run(&endpoint, "get", 10, 0).await.unwrap_err().to_string().contains("--keys"));
}

#[tokio::test]
async fn a_wrong_byte_is_noticed() {
    let gateway = Arc::new(Gateway { lies: true, ..Gateway::default() });
    let endpoint = gateway.serve().await;
    assert_eq!(run(&endpoint, "put", 5, 0).await.unwrap().errors, 0);
    let report = run(&endpoint, "get", 7, 5).await.unwrap();
    assert_eq!(report.errors, 7);
    assert!(report.first_errors[0].contains("not what was written"), "{:?}", report.first_errors);
}
