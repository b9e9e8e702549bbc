//! tmp
use reqtrace::{attach, kernel};
fn main() {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap()
        .block_on(async {
            let host = kernel::Host::examine().unwrap();
            eprintln!("{host:?}");
            let t = std::time::Instant::now();
            let loaded = match attach::load(
                &host,
                attach::LoadOptions {
                    kernel_stacks: true,
                    user_stacks: true,
                    messages: true,
                },
            ) {
                Ok(l) => l,
                Err(e) => {
                    eprintln!("{e}");
                    use std::error::Error;
                    let mut s = e.source();
                    while let Some(x) = s {
                        eprintln!("{x}");
                        s = x.source();
                    }
                    std::process::exit(1)
                }
            };
            eprintln!("loaded {:?}", t.elapsed());
            let mut s = loaded.attach(&[], &[1], true).unwrap();
            eprintln!("attached {:?} mem {}", t.elapsed(), s.kernel_memory());
            tokio::time::sleep(std::time::Duration::from_secs(
                std::env::args().nth(1).map_or(1, |x| x.parse().unwrap()),
            ))
            .await;
            let stop = s.stop().unwrap();
            let snap = s.snapshot(stop, 1).unwrap();
            eprintln!("{:?} {:?}", snap.losses, snap.programs);
        });
}
