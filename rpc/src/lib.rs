//! RPC plumbing: call sessions over gRPC, the framed block transport, peer authentication, deadlines.
