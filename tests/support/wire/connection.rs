//! A client's connection, and the corresponding one to the server.

use std::{
    io,
    ops::ControlFlow,
    pin::pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Instant,
};

use bytes::{Bytes, BytesMut};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{
        TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel},
};

use super::{
    Parcel, Protocol, Request, Session, State, Upstream, dynamodb,
    faults::{Action, Rewrite},
    http, postgres, resp,
};

/// A function that returns the length of the first message in these bytes, if it is complete.
type Length = fn(&[u8]) -> Option<usize>;

/// One side of the proxy.
pub(super) struct Side {
    reader: Reader,
    writer: OwnedWriteHalf,
}

struct Reader {
    stream: OwnedReadHalf,
    buffer: BytesMut,
}

impl Reader {
    /// Reads more bytes, and returns 0 at the end.
    async fn fill(&mut self) -> io::Result<usize> {
        self.stream.read_buf(&mut self.buffer).await
    }

    /// Returns the next complete message. Cancel-safe, because read bytes are kept.
    async fn expect(&mut self, length: impl Fn(&[u8]) -> Option<usize>) -> io::Result<Bytes> {
        loop {
            if let Some(length) = length(&self.buffer) {
                return Ok(self.buffer.split_to(length).freeze());
            }
            if self.fill().await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }
}

impl Side {
    pub(super) fn new(stream: TcpStream) -> Self {
        let (stream, writer) = stream.into_split();
        Self { reader: Reader { stream, buffer: BytesMut::new() }, writer }
    }

    pub(super) async fn fill(&mut self) -> io::Result<usize> {
        self.reader.fill().await
    }

    pub(super) async fn expect(&mut self, length: impl Fn(&[u8]) -> Option<usize>) -> io::Result<Bytes> {
        self.reader.expect(length).await
    }

    pub(super) async fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.writer.write_all(bytes).await
    }
}

/// Serves a client until either side leaves, or a fault ends the connection. Requests that the client was still waiting
/// for when it left are applied nevertheless.
pub(super) async fn serve(client: TcpStream, upstream: Upstream, state: Arc<Mutex<State>>) {
    let Ok(server) = upstream.connect().await else { return };
    let (mut client, mut server) = (Side::new(client), Side::new(server));
    let session = match upstream.protocol {
        Protocol::Resp | Protocol::DynamoDb => Session::default(),
        Protocol::Postgres => match postgres::start_up(&mut client, &mut server).await {
            Ok(Some(message)) => Session(BytesMut::from(&message[..])),
            Ok(None) | Err(_) => return,
        },
    };
    let (answers, due) = unbounded_channel();
    let unanswered = Arc::<AtomicUsize>::default();
    let requests = Requests {
        client: client.reader,
        server: server.writer,
        upstream,
        session,
        statements: postgres::Statements::default(),
        unanswered: Arc::clone(&unanswered),
        answers,
        state: Arc::clone(&state),
    };
    let response_length = match upstream.protocol {
        Protocol::Resp => resp::response_length,
        Protocol::Postgres => postgres::response_length,
        Protocol::DynamoDb => http::response_length,
    };
    let answers =
        Answers { server: server.reader, client: client.writer, upstream, response_length, unanswered, due, state };
    let mut answers = pin!(answers.pass());
    // Kept until all responses are sent, because a server may close a connection with one closed direction.
    let _server = tokio::select! {
        () = &mut answers => return,
        server = requests.pass() => server,
    };
    answers.await;
}

/// The direction from the client to the server.
struct Requests {
    client: Reader,
    server: OwnedWriteHalf,
    upstream: Upstream,
    session: Session,
    statements: postgres::Statements,
    unanswered: Arc<AtomicUsize>,
    answers: UnboundedSender<(Instant, Due)>,
    state: Arc<Mutex<State>>,
}

/// The pending responses to the client, in the order of its requests.
enum Due {
    /// The server's response.
    Answer,
    /// The server's response, after the request has been applied again.
    AnswerAfter(Parcel),
    /// The server's response, rewritten.
    AnswerAs(Rewrite),
    /// The end of the connection, after the server has responded.
    CloseAfterAnswer,
    /// The end of the connection.
    Close,
    /// No response, until the client gives up.
    Silence,
    /// The same after the server has responded to this request.
    SilenceAfterAnswer(UnboundedSender<Request>, Request),
    /// These bytes.
    Text(Bytes),
}

impl Requests {
    /// Forwards requests until the client has left, or a fault ends the connection.
    async fn pass(mut self) -> OwnedWriteHalf {
        self.pass_all().await;
        self.server
    }

    async fn pass_all(&mut self) {
        let mut is_continued = false;
        loop {
            let burst = self.arrived();
            if !burst.is_empty() {
                let mut begins = self.unanswered.fetch_add(burst.len(), Ordering::SeqCst) == 0 && !is_continued;
                for bytes in burst {
                    if self.undergo(bytes, begins).await.is_break() {
                        return;
                    }
                    begins = false;
                }
                // A request that arrived in part with the previous one belongs to the same round trip.
                is_continued = !self.client.buffer.is_empty();
            }
            if !matches!(self.client.fill().await, Ok(1..)) {
                return;
            }
        }
    }

    /// Returns all complete requests that have arrived.
    fn arrived(&mut self) -> Vec<Bytes> {
        let length: Length = match self.upstream.protocol {
            Protocol::Resp => |bytes| (!bytes.is_empty()).then(|| resp::request_length(bytes)).flatten(),
            Protocol::Postgres => postgres::request_length,
            Protocol::DynamoDb => http::request_length,
        };
        let buffer = &mut self.client.buffer;
        std::iter::from_fn(|| length(buffer).map(|length| buffer.split_to(length).freeze())).collect()
    }

    /// Returns the parsed request, and the bytes that apply it on another connection.
    fn read(&mut self, bytes: &Bytes) -> (Request, Parcel) {
        let (request, preparation) = match self.upstream.protocol {
            Protocol::Resp => (resp::request(bytes), Bytes::new()),
            Protocol::Postgres => self.statements.request(bytes),
            Protocol::DynamoDb => (dynamodb::request(bytes), Bytes::new()),
        };
        if self.upstream.protocol == Protocol::Resp && resp::sets_up(&request) {
            self.session.0.extend_from_slice(bytes);
        }
        let bytes = [preparation, bytes.clone()].concat().into();
        (request, Parcel { upstream: self.upstream, session: self.session.clone(), bytes })
    }

    /// Applies the fault of the test to a request. Breaks if no further request of the connection may follow.
    async fn undergo(&mut self, bytes: Bytes, begins_round_trip: bool) -> ControlFlow<()> {
        if self.upstream.protocol == Protocol::Postgres && postgres::is_termination(&bytes) {
            let _ = self.server.write_all(&bytes).await; // fails only if the server has left already
            return ControlFlow::Break(());
        }
        let (request, parcel) = self.read(&bytes);
        let (request, action) = self.state.lock().unwrap().enter(request, begins_round_trip);
        match action {
            Action::Forward => self.forward(&bytes, Due::Answer).await,
            Action::Repeat => self.forward(&bytes, Due::AnswerAfter(parcel)).await,
            Action::Rewrite(request, answer) => self.forward(&request(&bytes), Due::AnswerAs(answer)).await,
            Action::DropResponse => {
                self.forward(&bytes, Due::CloseAfterAnswer).await;
                return ControlFlow::Break(());
            }
            Action::DropRequest => {
                self.owe(Due::Close);
                return ControlFlow::Break(());
            }
            Action::Respond(answer) => self.owe(Due::Text(answer)),
            Action::Copy(arrivals, parcels) => {
                let _ = parcels.send(parcel); // fails if the test dropped the handle
                let _ = arrivals.send(request);
                self.forward(&bytes, Due::Answer).await;
            }
            Action::Late { arrivals, parcels, is_silent } => {
                self.owe(if is_silent { Due::Silence } else { Due::Close });
                let _ = parcels.send(parcel);
                let _ = arrivals.send(request);
                if is_silent {
                    self.client_leaves().await;
                }
                return ControlFlow::Break(());
            }
            Action::Withhold(answered) => {
                self.forward(&bytes, Due::SilenceAfterAnswer(answered, request)).await;
                self.client_leaves().await;
                return ControlFlow::Break(());
            }
            Action::Delay(time) => {
                tokio::time::sleep(time()).await;
                self.forward(&bytes, Due::Answer).await;
            }
            Action::Hold(arrivals, gate) => {
                let _ = arrivals.send(request);
                if gate.lock().await.recv().await.is_none() {
                    self.owe(Due::Close);
                    return ControlFlow::Break(());
                }
                self.forward(&bytes, Due::Answer).await;
            }
        }
        ControlFlow::Continue(())
    }

    /// Waits until the client has closed the connection.
    async fn client_leaves(&mut self) {
        while matches!(self.client.fill().await, Ok(1..)) {}
    }

    async fn forward(&mut self, bytes: &[u8], due: Due) {
        self.owe(due);
        let _ = self.server.write_all(bytes).await; // fails only if the server has left, which its responses show
    }

    fn owe(&self, due: Due) {
        let _ = self.answers.send((Instant::now(), due)); // fails only if the server has left
    }
}

/// The direction from the server to the client.
struct Answers {
    server: Reader,
    client: OwnedWriteHalf,
    upstream: Upstream,
    response_length: Length,
    unanswered: Arc<AtomicUsize>,
    due: UnboundedReceiver<(Instant, Due)>,
    state: Arc<Mutex<State>>,
}

impl Answers {
    async fn pass(mut self) {
        loop {
            tokio::select! {
                biased; // the end of the server comes after its responses
                due = self.due.recv() => {
                    let Some((asked, due)) = due else { return };
                    let is_answer = matches!(due, Due::Answer | Due::AnswerAfter(_) | Due::AnswerAs(_));
                    if !matches!(self.give(due).await, Ok(ControlFlow::Continue(()))) {
                        return;
                    }
                    if is_answer {
                        self.state.lock().unwrap().responded(asked);
                    }
                }
                read = self.server.fill() => if !matches!(read, Ok(1..)) {
                    return self.give_rest().await;
                }
            }
        }
    }

    /// Sends a response to the client. Breaks if the connection ends.
    async fn give(&mut self, due: Due) -> io::Result<ControlFlow<()>> {
        let answer = match due {
            Due::Text(answer) => answer,
            Due::Answer => self.answer().await?,
            Due::AnswerAfter(parcel) => {
                let answer = self.answer().await?;
                parcel.send().await?;
                answer
            }
            Due::AnswerAs(rewrite) => rewrite(&self.answer().await?),
            Due::CloseAfterAnswer => {
                self.answer().await?;
                return Ok(ControlFlow::Break(()));
            }
            Due::Close => return Ok(ControlFlow::Break(())),
            Due::Silence => {
                self.due.recv().await; // comes when the client has left
                return Ok(ControlFlow::Break(()));
            }
            Due::SilenceAfterAnswer(answered, request) => {
                self.answer().await?;
                let _ = answered.send(request); // fails if the test dropped the handle
                self.due.recv().await;
                return Ok(ControlFlow::Break(()));
            }
        };
        // First, because the client may send its next request as soon as it has the response.
        self.unanswered.fetch_sub(1, Ordering::SeqCst);
        let _ = self.client.write_all(&answer).await; // fails if the client has left; others may be under way
        Ok(ControlFlow::Continue(()))
    }

    async fn answer(&mut self) -> io::Result<Bytes> {
        let answer = self.server.expect(self.response_length).await;
        if answer.is_err() {
            self.give_rest().await;
        }
        answer.map(|answer| self.upstream.disguise(answer))
    }

    /// Forwards the remaining bytes to the client after the server has left, such as the reason.
    async fn give_rest(&mut self) {
        let _ = self.client.write_all(&self.server.buffer).await; // fails only if the client has left already
    }
}
