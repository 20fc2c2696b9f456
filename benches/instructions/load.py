"""The upstream, and clients that send one request on each of many kept connections, and wait for all answers, in rounds."""

import selectors
import socket
import ssl
import struct
import threading

CONNECTIONS = 64
SERVERS = 5  # where requests are shared out
STREAMS = 8  # of each connection of HTTP/2; the requests of a round are as many as without it

BODY = b'{"ok":true,"items":[1,2,3,4,5,6,7,8,9,10],"msg":"hello from upstream, this is a small api reply"}'
ANSWER = (
    b"HTTP/1.1 200 OK\r\nServer: upstream\r\nDate: Sun, 22 Nov 2026 19:00:00 GMT\r\n"
    b"Content-Type: application/json\r\nContent-Length: %d\r\nConnection: keep-alive\r\n\r\n%s" % (len(BODY), BODY)
)


class Upstream:
    """Answers every request with the same bytes, at several ports, on a thread of its own, until the process ends."""

    def __init__(self, http2=False):
        self.answer = answer_http2 if http2 else answer
        self.listeners = [socket.create_server(("127.0.0.1", 0), backlog=4096) for _ in range(SERVERS)]
        self.ports = [listener.getsockname()[1] for listener in self.listeners]
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        ready = selectors.DefaultSelector()
        for listener in self.listeners:
            ready.register(listener, selectors.EVENT_READ)
        while True:
            for key, _ in ready.select():
                if key.fileobj in self.listeners:
                    connection, _ = key.fileobj.accept()
                    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    ready.register(connection, selectors.EVENT_READ, bytearray())
                elif not self.answer(key.fileobj, key.data):
                    ready.unregister(key.fileobj)
                    key.fileobj.close()


def answer(connection, have):
    """Answers the requests that have come whole; what is left waits in `have`. False at the end of the connection."""
    try:
        piece = connection.recv(65536)
        have += piece
        while (length := request_length(have)) is not None:
            connection.sendall(reply(have.split(b" ", 2)[1]))
            del have[:length]
        return bool(piece)
    except OSError:
        return False


PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
# :status 200, then server, date, content-type and content-length as literals with names of the static table (RFC 7541, appendix A).
FIELDS = ((b"\x27", b"upstream"), (b"\x12", b"Sun, 22 Nov 2026 19:00:00 GMT"), (b"\x10", b"application/json"), (b"\x0d", b"%d" % len(BODY)))
BLOCK = b"\x88" + b"".join(b"\x0f" + name + bytes([len(value)]) + value for name, value in FIELDS)


def answer_http2(connection, have):
    """The same for HTTP/2 (RFC 9113): an answer to each stream that has ended. False at the end of the connection."""
    try:
        piece = connection.recv(65536)
        have += piece
        said = b""
        if have.startswith(PREFACE):
            del have[: len(PREFACE)]
            said = frame(Http2.SETTINGS, 0, 0, b"\x00\x03" + struct.pack(">I", 1000))  # streams at a time
        while len(have) >= 9 and len(have) >= 9 + (length := int.from_bytes(have[:3], "big")):
            kind, flags, stream = have[3], have[4], int.from_bytes(have[5:9], "big")
            if kind in (Http2.SETTINGS, Http2.PING) and not flags & Http2.ACK:
                said += frame(kind, Http2.ACK, 0, bytes(have[9 : 9 + length]) if kind == Http2.PING else b"")
            if kind in (Http2.DATA, Http2.HEADERS) and flags & Http2.END_STREAM:
                said += frame(Http2.HEADERS, Http2.END_HEADERS, stream, BLOCK) + frame(Http2.DATA, Http2.END_STREAM, stream, BODY)
            del have[: 9 + length]
        connection.sendall(said)
        return bool(piece)
    except OSError:
        return False


def request_length(have):
    """The bytes of the first request, once all of it has come."""
    head, end, body = have.partition(b"\r\n\r\n")
    if not end:
        return None
    fields = dict(line.lower().split(b": ", 1) for line in bytes(head).split(b"\r\n")[1:])
    if fields.get(b"transfer-encoding") == b"chunked":
        last = body.find(b"0\r\n\r\n") if body.startswith(b"0\r\n\r\n") else body.find(b"\r\n0\r\n\r\n") + 2
        whole = last + 5 if last >= 0 and body[last : last + 1] == b"0" else None
    else:
        length = int(fields.get(b"content-length", 0))
        whole = length if len(body) >= length else None
    return None if whole is None else len(head) + 4 + whole


def reply(path):
    """What the upstream answers: another form where the path asks for it."""
    if path.startswith(b"/large"):
        return b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 100000\r\n\r\n" + b"a" * 100_000
    if path.startswith(b"/chunked"):
        chunk = b"%x\r\n%s\r\n" % (len(BODY), BODY)
        return b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n" + chunk * 5 + b"0\r\n\r\n"
    return ANSWER


def connected(port, protocol=None):
    """A connection to the proxy; with the name of a protocol it has TLS, and the two agree on that protocol."""
    connection = socket.create_connection(("127.0.0.1", port))
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if protocol is None:
        return connection
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE  # the certificate was made for this run
    context.set_alpn_protocols([protocol])
    return context.wrap_socket(connection)


class Http1:
    """One kept connection of HTTP/1.1: a request a round."""

    requests = 1
    protocol = "http/1.1"

    def __init__(self, port, path, tls=False, fields=""):
        self.socket = connected(port, self.protocol if tls else None)
        self.request = f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nx-api-key: k1\r\n{fields}\r\n".encode()

    def send(self):
        self.socket.sendall(self.request)

    def statuses(self):
        """Yields the status of the answer, once all of it is here."""
        have = b""
        while b"\r\n\r\n" not in have:
            have += self.received()
        head, _, body = have.partition(b"\r\n\r\n")
        fields = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:])
        while len(body) < int(fields[b"content-length"]):
            body += self.received()
        yield int(head[9:12])

    def received(self):
        piece = self.socket.recv(65536)
        if not piece:
            raise ConnectionError("a kept connection was closed")
        return piece


class Http2(Http1):
    """One kept connection of HTTP/2 (RFC 9113), prior knowledge: several streams a round."""

    requests = STREAMS
    protocol = "h2"
    DATA, HEADERS, SETTINGS, PING, WINDOW_UPDATE = 0, 1, 4, 6, 8
    END_STREAM, ACK, END_HEADERS = 1, 1, 4

    def __init__(self, port, path, tls=False):
        super().__init__(port, path, tls)
        self.stream = 1
        # GET, the scheme and / are of the static table (RFC 7541, appendix A); the rest are literals that are not indexed.
        authority = f"127.0.0.1:{port}".encode()
        scheme = b"\x87" if tls else b"\x86"
        self.block = b"\x82" + scheme + b"\x84\x01" + bytes([len(authority)]) + authority + b"\x00\x09x-api-key\x02k1"
        window = struct.pack(">I", 2**30)
        greeting = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(self.SETTINGS, 0, 0, b"")
        self.socket.sendall(greeting + frame(self.WINDOW_UPDATE, 0, 0, window))

    def send(self):
        flags = self.END_STREAM | self.END_HEADERS
        streams = range(self.stream, self.stream + 2 * STREAMS, 2)
        self.stream += 2 * STREAMS
        self.socket.sendall(b"".join(frame(self.HEADERS, flags, stream, self.block) for stream in streams))

    def statuses(self):
        """Yields the status of each answer. A block of fields begins with `:status`, whose 200 is one byte."""
        ended = 0
        have = b""
        while ended < STREAMS:
            while len(have) < 9 or len(have) < 9 + int.from_bytes(have[:3], "big"):
                have += self.received()
            length, kind, flags = int.from_bytes(have[:3], "big"), have[3], have[4]
            payload, have = have[9 : 9 + length], have[9 + length :]
            if kind in (self.SETTINGS, self.PING) and not flags & self.ACK:
                self.socket.sendall(frame(kind, self.ACK, 0, payload if kind == self.PING else b""))
            if kind == self.HEADERS:
                yield 200 if b"\x88" in payload[:4] else 0
            if kind in (self.DATA, self.HEADERS) and flags & self.END_STREAM:
                ended += 1


def frame(kind, flags, stream, payload):
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


class Load:
    """All connections to one proxy. Where requests are refused, the first, which passes, is behind them."""

    def __init__(self, case, port):
        of = Http2 if case.http2 else Http1
        self.status = case.status
        more = {"fields": case.fields} if case.fields else {}
        self.connections = [of(port, case.path, case.tls, **more) for _ in range(CONNECTIONS // of.requests)]
        if case.status != 200:
            self.connections[0].send()
            list(self.connections[0].statuses())

    def rounds(self, count):
        """Sends so many rounds, and returns how many requests they were. Any other status than the case's is an error."""
        for _ in range(count):
            for connection in self.connections:
                connection.send()
            for connection in self.connections:
                for status in connection.statuses():
                    if status != self.status:
                        raise ValueError(f"answered {status}, not {self.status}")
        return count * CONNECTIONS
