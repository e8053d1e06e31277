//! What programs and their session say to one another.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    use txos_protocol::{Reply, Request};
    if let Some(request) = Request::decode(bytes) {
        assert_eq!(Request::decode(&request.encode()), Some(request));
    }
    if let Some(reply) = Reply::decode(bytes) {
        assert_eq!(Reply::decode(&reply.encode()), Some(reply));
    }
});
