//! ReadMirrorStates and WriteMirrorStates. The states are kept by the mirror coordinators, which are
//! brokers; a controller names the error by which clients find them.

use protocol::error_code::ErrorCode;
use protocol::mirror::{
    ReadMirrorStatesRequest, ReadMirrorStatesResponse, WriteMirrorStatesRequest, WriteMirrorStatesResponse,
};

pub fn read(_request: &ReadMirrorStatesRequest) -> ReadMirrorStatesResponse {
    ReadMirrorStatesResponse { error_code: ErrorCode::NotCoordinator.code(), ..Default::default() }
}

pub fn write(_request: &WriteMirrorStatesRequest) -> WriteMirrorStatesResponse {
    WriteMirrorStatesResponse { error_code: ErrorCode::NotCoordinator.code(), ..Default::default() }
}
