//! Two processes: a server provides memory, and a client writes into it and notifies the server.
//!
//! ```sh
//! cargo run --example two_processes -- serve 127.0.0.1:7000
//! cargo run --example two_processes -- call 127.0.0.1:7000
//! ```
//!
//! On a machine without a device, `cargo run -p mlx5-sim-wire -- /tmp/machine --stay` serves a
//! simulated one, and both are given its socket after the address.

use mlx5::{Access, ConnectOptions, Context, RemoteSlice, SendFlags, Sge, transport::Rc};
use mlx5_sim_wire::Wire;
use std::error::Error;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match args[..] {
        ["serve", address] => serve(&mlx5::open(None)?, address),
        ["serve", address, socket] => serve(&simulated(socket)?, address),
        ["call", address] => call(&mlx5::open(None)?, address),
        ["call", address, socket] => call(&simulated(socket)?, address),
        ["-h" | "--help"] => {
            println!("{USAGE}");
            Ok(())
        }
        _ => Err(USAGE.into()),
    }
}

const USAGE: &str = "usage: two_processes serve|call ADDRESS [SOCKET]";

/// Opens the device of the simulated machine that is served at a socket.
fn simulated(socket: &str) -> Result<Context, Box<dyn Error>> {
    let machine = Wire::connect(Path::new(socket))?;
    Ok(mlx5::devices_on(Arc::new(machine))?.first().ok_or("no device")?.open()?)
}

fn serve(context: &Context, address: &str) -> Result<(), Box<dyn Error>> {
    let pd = context.alloc_pd()?;
    let channel = context.create_comp_channel()?;
    let mut cq = context.create_cq(16).channel(&channel).build()?;
    let mut qp = pd.create_qp::<Rc>(&cq, &cq).build()?;
    let memory = pd.memory(4096).access(Access::LOCAL_WRITE | Access::REMOTE_WRITE).register()?;
    let (port, options) = (context.local_port(1, None)?, ConnectOptions::default());

    let listener = TcpListener::bind(address)
        .map_err(|error| format!("cannot listen at {address}: {error}"))?;
    println!("ready on {}", listener.local_addr()?);
    let (mut stream, _) = listener.accept()?;

    // A receive for the client's notification, posted before the client can send.
    qp.init(&port, &options)?;
    qp.recv(1, Sge::default())?;
    qp.connect_over(&stream, &port, &options)?;
    stream.write_all(&memory.remote_slice(..)?.to_bytes())?;

    // Sleep until the notification has come. It carries the length of the message.
    cq.wait(false, None)?;
    let mut length = 0;
    cq.try_poll(1, |completion| {
        completion.status()?;
        length = completion.imm_data().map_or(0, u32::from_be_bytes);
        Ok::<_, Box<dyn Error>>(())
    })?;
    let mut bytes = vec![0; length as usize];
    memory.read_at(0, &mut bytes)?;
    println!("the client wrote {:?}", String::from_utf8(bytes)?);

    // The client hangs up once its request has completed: until then it needs this queue pair.
    stream.read_to_end(&mut Vec::new())?;
    Ok(())
}

fn call(context: &Context, address: &str) -> Result<(), Box<dyn Error>> {
    let pd = context.alloc_pd()?;
    let channel = context.create_comp_channel()?;
    let mut cq = context.create_cq(16).channel(&channel).build()?;
    let mut qp = pd.create_qp::<Rc>(&cq, &cq).build()?;
    let memory = pd.allocate(4096)?;

    let mut stream = TcpStream::connect(address).map_err(|error| {
        format!("no server at {address}: {error}; start one with `two_processes serve {address}`")
    })?;
    qp.connect_over(&stream, &context.local_port(1, None)?, &ConnectOptions::default())?;
    let mut bytes = [0; RemoteSlice::<u8>::BYTES];
    stream.read_exact(&mut bytes)?;
    let theirs: RemoteSlice = RemoteSlice::from_bytes(&bytes)?;

    // Write the message into the server's memory, and notify the server with the same request.
    let message = "hello from another process";
    memory.write_at(0, message.as_bytes())?;
    let to = theirs.range(..message.len())?.start();
    let from = memory.sge(..message.len())?;
    let length = (message.len() as u32).to_be_bytes();
    qp.post(|batch| batch.wr(1, SendFlags::SIGNALED).rdma_write_imm(to, length).sge(from))?;

    cq.wait(false, None)?;
    cq.try_poll(1, |completion| Ok::<_, Box<dyn Error>>(completion.status()?))?;
    println!("written");
    Ok(())
}
