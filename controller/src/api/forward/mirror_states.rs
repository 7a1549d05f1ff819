//! ReadMirrorStates and WriteMirrorStates. The states are kept by the mirror coordinators, which are
//! brokers; a controller names the error by which clients find them.

use protocol::error_code::ErrorCode;
use protocol::mirror::{
    ReadMirrorStatesRequest, ReadMirrorStatesResponse, WriteMirrorStatesRequest, WriteMirrorStatesResponse,
};

use crate::api::ApiContext;

pub fn read(_context: &ApiContext, _request: &ReadMirrorStatesRequest) -> ReadMirrorStatesResponse {
    let mut response = ReadMirrorStatesResponse::default();
    response.error_code = ErrorCode::NotCoordinator.code();
    response
}

pub fn write(_request: &WriteMirrorStatesRequest) -> WriteMirrorStatesResponse {
    let mut response = WriteMirrorStatesResponse::default();
    response.error_code = ErrorCode::NotCoordinator.code();
    response
}
