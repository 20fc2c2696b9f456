//! Headers of both versions: examples of the specification, and headers that it forbids.

use super::crc32c::crc32c;
use super::fuzz::header;
use super::*;
use proptest::prelude::*;

/// The client of a complete header, and the bytes after it.
fn read_header(bytes: &[u8]) -> Result<(NamedClient, &[u8]), HeaderFault> {
    header(bytes);
    let HeaderProgress { taken, client } = HeaderReader::default().read(bytes)?;
    Ok((client.expect("a whole header"), &bytes[taken..]))
}

fn fault(bytes: &[u8]) -> HeaderFault {
    read_header(bytes).expect_err("a faulty header")
}

fn is_beginning(bytes: &[u8]) -> bool {
    let read = HeaderReader::default().read(bytes);
    read.is_ok_and(|progress| progress.client.is_none() && progress.taken == bytes.len())
}

fn client(address: &str) -> NamedClient {
    NamedClient::At(address.parse().unwrap())
}

/// A header of version 2.
fn binary(command: u8, family: u8, payload: &[u8]) -> Vec<u8> {
    let length = u16::try_from(payload.len()).unwrap().to_be_bytes();
    [&SIGNATURE[..], &[command, family], &length, payload].concat()
}

fn inet(source: [u8; 4], port: u16) -> Vec<u8> {
    [
        &source[..],
        &[10, 0, 0, 1],
        &port.to_be_bytes(),
        &443_u16.to_be_bytes(),
    ]
    .concat()
}

fn tlv(kind: u8, value: &[u8]) -> Vec<u8> {
    let length = u16::try_from(value.len()).unwrap().to_be_bytes();
    [&[kind], &length[..], value].concat()
}

/// Writes the checksum into the TLV whose value begins at `at`.
fn sealed(mut head: Vec<u8>, at: usize) -> Vec<u8> {
    let checksum = crc32c(&[&head]);
    head[at..at + 4].copy_from_slice(&checksum.to_be_bytes());
    head
}

#[test]
fn a_line_names_its_client_and_leaves_what_follows() {
    let after = b"GET / HTTP/1.1\r\n";
    let named = |line: &str| {
        let bytes = [line.as_bytes(), after].concat();
        let (client, rest) = read_header(&bytes).unwrap();
        assert_eq!(rest, after);
        client
    };
    assert_eq!(
        named("PROXY TCP4 192.0.2.1 198.51.100.1 56324 443\r\n"),
        client("192.0.2.1:56324")
    );
    assert_eq!(
        named("PROXY TCP4 255.255.255.255 0.0.0.0 65535 0\r\n"),
        client("255.255.255.255:65535")
    );
    assert_eq!(
        named("PROXY TCP6 2001:db8::1 ::1 1 2\r\n"),
        client("[2001:db8::1]:1")
    );
    // The longest line of the specification.
    let full = "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff";
    assert_eq!(
        named(&format!("PROXY TCP6 {full} {full} 65535 65535\r\n")),
        client(&format!("[{full}]:65535"))
    );
    assert_eq!(
        named("PROXY TCP6 ::ffff:192.0.2.1 ::1 1 2\r\n"),
        client("192.0.2.1:1")
    );
    assert_eq!(named("PROXY UNKNOWN\r\n"), NamedClient::Nobody);
    let longest = format!("PROXY UNKNOWN {}\r\n", "f".repeat(107 - 16));
    assert_eq!(longest.len(), LONGEST_TEXT);
    assert_eq!(named(&longest), NamedClient::Nobody);
}

#[test]
fn a_line_of_another_form_is_refused() {
    for line in [
        "PROXY TCP4 192.0.2.1 198.51.100.1 56324 443\n",
        "PROXY TCP4 192.0.2.1 198.51.100.1 56324\r\n",
        "PROXY TCP4 192.0.2.1 198.51.100.1 56324 443 \r\n",
        "PROXY TCP4 192.0.2.1 198.51.100.1 56324 443 1\r\n",
        "PROXY TCP4  192.0.2.1 198.51.100.1 56324 443\r\n",
        "PROXY TCP4\t192.0.2.1 198.51.100.1 56324 443\r\n",
        "PROXY  TCP4 192.0.2.1 198.51.100.1 56324 443\r\n",
        "PROXY TCP4 192.0.2.1 198.51.100.1 56324 65536\r\n",
        "PROXY TCP4 192.0.2.1 198.51.100.1 70000 443\r\n",
        "PROXY TCP4 192.0.2.1 198.51.100.1 -1 443\r\n",
        "PROXY TCP4 192.0.2.1 198.51.100.1 +1 443\r\n",
        "PROXY TCP4 192.0.2.1 198.51.100.1 01 443\r\n",
        "PROXY TCP4 192.0.2.1 198.51.100.1 00 443\r\n",
        "PROXY TCP4 192.0.2.1 198.51.100.1 0x1 443\r\n",
        "PROXY TCP4 192.0.2.1 198.51.100.1  443\r\n",
        "PROXY TCP4 192.0.2.256 198.51.100.1 1 443\r\n",
        "PROXY TCP4 192.0.2.01 198.51.100.1 1 443\r\n",
        "PROXY TCP4 192.0.2 198.51.100.1 1 443\r\n",
        "PROXY TCP4 192.0.2.1 anything 1 443\r\n",
        "PROXY TCP4 anything 192.0.2.1 1 443\r\n",
        "PROXY TCP4 2001:db8::1 ::1 1 443\r\n",
        "PROXY TCP6 192.0.2.1 198.51.100.1 1 443\r\n",
        "PROXY TCP6 fe80::1%eth0 ::1 1 443\r\n",
        "PROXY TCP6 [::1] ::1 1 443\r\n",
        "PROXY TCP6 1::2::3 ::1 1 443\r\n",
        "PROXY TCP5 192.0.2.1 198.51.100.1 1 443\r\n",
        "PROXY tcp4 192.0.2.1 198.51.100.1 1 443\r\n",
        "PROXY UDP4 192.0.2.1 198.51.100.1 1 443\r\n",
        "PROXY TCP4 192.0.2.1\0 198.51.100.1 1 443\r\n",
        "PROXY TCP4 192.0.2.1 198.51.100.1 1 443\r\r\n",
        "PROXY TCP4\r\n",
        "PROXY \r\n",
        "PROXY UNKNOWN\n",
        "PROXY UNKNOWN \r \r\n",
        "PROXY UNKNOWNS\r\n",
        "PROXY unknown\r\n",
    ] {
        assert_eq!(fault(line.as_bytes()), HeaderFault::Line, "{line:?}");
    }
    let line = b"PROXY TCP4 \xff\xfe 198.51.100.1 1 443\r\n";
    assert_eq!(fault(line), HeaderFault::Line);
    let long = format!("PROXY UNKNOWN {}\r\n", "f".repeat(107 - 15));
    assert_eq!(fault(long.as_bytes()), HeaderFault::LongLine);
    assert_eq!(fault(&long.as_bytes()[..107]), HeaderFault::LongLine);
    assert!(is_beginning(&long.as_bytes()[..106]));
}

#[test]
fn other_bytes_are_refused_with_the_first_that_differs() {
    for bytes in [
        &b"G"[..],
        b"\x16\x03\x01",
        b"PROXY\r",
        b"PROXYTCP4",
        b"proxy ",
        b"PRI * HTTP/2.0",
        b"\r\n\r\n\0\r\nQUIT\r",
        b"\r\n\r\n\n",
        b"\n",
        b"\0",
    ] {
        assert_eq!(fault(bytes), HeaderFault::NoHeader, "{bytes:?}");
    }
    for beginning in [&b""[..], b"P", b"PROXY", b"PROXY TCP4 1", b"\r", SIGNATURE] {
        assert!(is_beginning(beginning), "{beginning:?}");
    }
}

#[test]
fn a_binary_header_names_its_client_and_leaves_what_follows() {
    let after = b"\x16\x03\x01";
    let named = |head: Vec<u8>| {
        let bytes = [&head, &after[..]].concat();
        let (client, rest) = read_header(&bytes).unwrap();
        assert_eq!(rest, after);
        client
    };
    let four = inet([192, 0, 2, 1], 56324);
    assert_eq!(named(binary(0x21, 0x11, &four)), client("192.0.2.1:56324"));
    let six = |source: &str| {
        let source: Ipv6Addr = source.parse().unwrap();
        [
            &source.octets()[..],
            &[0; 16],
            &7_u16.to_be_bytes(),
            &[0; 2],
        ]
        .concat()
    };
    assert_eq!(
        named(binary(0x21, 0x21, &six("2001:db8::1"))),
        client("[2001:db8::1]:7")
    );
    assert_eq!(
        named(binary(0x21, 0x21, &six("::ffff:192.0.2.1"))),
        client("192.0.2.1:7")
    );
    // The proxy's own connections, and connections of clients without an IP address.
    for (command, family, payload) in [
        (0x20, 0x00, &[][..]),
        (0x20, 0x11, &four),
        (0x20, 0x99, &[1, 2, 3]),
        (0x21, 0x00, &[]),
        (0x21, 0x00, &[1, 2, 3]),
        (0x21, 0x31, &[7; 216]),
        (0x21, 0x32, &[7; 216]),
        (0x21, 0x12, &four),
        (0x21, 0x22, &[7; 36]),
    ] {
        let client = match command {
            0x20 => NamedClient::Peer,
            _ => NamedClient::Nobody,
        };
        assert_eq!(named(binary(command, family, payload)), client);
    }
}

#[test]
fn a_binary_header_of_another_form_is_refused() {
    let four = inet([192, 0, 2, 1], 1);
    for (command, family, payload, expected) in [
        (0x11, 0x11, &four[..], HeaderFault::Version),
        (0x31, 0x11, &four, HeaderFault::Version),
        (0x01, 0x11, &four, HeaderFault::Version),
        (0x22, 0x11, &four, HeaderFault::Command),
        (0x2f, 0x00, &[], HeaderFault::Command),
        (0x21, 0x10, &four, HeaderFault::Family),
        (0x21, 0x01, &four, HeaderFault::Family),
        (0x21, 0x13, &four, HeaderFault::Family),
        (0x21, 0x41, &four, HeaderFault::Family),
        (0x21, 0x11, &four[..11], HeaderFault::Short),
        (0x21, 0x11, &[], HeaderFault::Short),
        (0x21, 0x21, &four, HeaderFault::Short),
        (0x21, 0x21, &[0; 35], HeaderFault::Short),
        (0x21, 0x31, &[0; 215], HeaderFault::Short),
        (0x21, 0x12, &[0; 4], HeaderFault::Short),
    ] {
        let head = binary(command, family, payload);
        assert_eq!(fault(&head), expected, "{command:x} {family:x}");
        // The fixed part alone is enough.
        assert_eq!(fault(&head[..FIXED]), expected);
    }
}

#[test]
fn tlvs_are_skipped_where_they_are_whole() {
    let with = |tlvs: &[u8]| binary(0x21, 0x11, &[&inet([192, 0, 2, 1], 9)[..], tlvs].concat());
    for tlvs in [
        tlv(0x04, &[]),
        tlv(0x04, &[0; 40]),
        tlv(0x01, b"h2"),
        tlv(0xee, b"own"),
        [tlv(0x02, b"example.com"), tlv(0x05, &[1; 128])].concat(),
        tlv(0x20, &[7; LONGEST_PAYLOAD - 12 - 3]),
        [tlv(0x04, &[0; 4096]), tlv(0xee, &[1; 9000])].concat(),
    ] {
        assert_eq!(
            read_header(&with(&tlvs)),
            Ok((client("192.0.2.1:9"), &[][..]))
        );
    }
    for tlvs in [
        &[0x04][..],
        &[0x04, 0],
        &[0x04, 0, 1],
        &[0x04, 0xff, 0xff, 0],
        &[0x04, 0, 0, 0x04],
        &tlv(0x03, &[0; 3]),
        &tlv(0x03, &[0; 5]),
        &tlv(0x03, &[]),
    ] {
        assert_eq!(fault(&with(tlvs)), HeaderFault::Tlv, "{tlvs:?}");
    }
}

#[test]
fn a_checksum_is_checked_where_it_stands() {
    let four = inet([192, 0, 2, 1], 9);
    let tlvs = [tlv(0x04, &[1, 2]), tlv(0x03, &[0; 4]), tlv(0xee, b"own")].concat();
    let head = binary(0x21, 0x11, &[&four[..], &tlvs].concat());
    let at = FIXED + INET + 5 + 3;
    let good = sealed(head.clone(), at);
    assert_eq!(read_header(&good), Ok((client("192.0.2.1:9"), &[][..])));
    assert_eq!(fault(&head), HeaderFault::Checksum);
    for changed in [FIXED, FIXED + 9, at, at + 3, good.len() - 1] {
        let mut bad = good.clone();
        bad[changed] ^= 1;
        assert_eq!(fault(&bad), HeaderFault::Checksum, "byte {changed}");
    }
    let twice = [tlv(0x03, &[0; 4]), tlv(0x03, &[0; 4])].concat();
    let twice = binary(0x21, 0x11, &[&four[..], &twice].concat());
    assert_eq!(fault(&twice), HeaderFault::Tlv);
}

proptest! {
    #[test]
    fn a_written_header_is_read(
        source in any::<SocketAddr>(),
        port in any::<u16>(),
        others in prop::collection::vec((4_u8.., prop::collection::vec(any::<u8>(), 0..20)), 0..4),
        after in prop::collection::vec(any::<u8>(), 0..30),
    ) {
        let (family, octets, word) = match source.ip() {
            IpAddr::V4(v4) => (0x11, v4.octets().to_vec(), "TCP4"),
            IpAddr::V6(v6) => (0x21, v6.octets().to_vec(), "TCP6"),
        };
        let tlvs: Vec<u8> = others.iter().flat_map(|(kind, value)| tlv(*kind, value)).collect();
        let payload = [
            &octets[..], &octets, &source.port().to_be_bytes(), &port.to_be_bytes(), &tlvs,
        ];
        let ip = source.ip();
        let line = format!("PROXY {word} {ip} {ip} {} {port}\r\n", source.port());
        let canonical = SocketAddr::new(ip.to_canonical(), source.port());
        for head in [binary(0x21, family, &payload.concat()), line.into_bytes()] {
            let bytes = [&head[..], &after].concat();
            prop_assert_eq!(read_header(&bytes), Ok((NamedClient::At(canonical), &after[..])));
            for end in 0..head.len() {
                prop_assert!(is_beginning(&head[..end]));
            }
        }
    }

    #[test]
    fn any_bytes_are_read_alike_in_pieces(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        header(&bytes);
        header(&[TEXT, &bytes].concat());
        header(&[&SIGNATURE[..], &bytes].concat());
        header(&binary(0x21, 0x11, &bytes));
        header(&binary(0x21, 0x21, &bytes));
    }
}
