//! CreateMirror.

use protocol::mirror::{CreateMirrorRequest, CreateMirrorResponse};

use super::failure;
use crate::api::ApiContext;
use crate::control::mirror::create::{NewMirror, create_mirror};

pub async fn handle(context: &ApiContext, request: CreateMirrorRequest) -> CreateMirrorResponse {
    let mirror = NewMirror {
        name: request.mirror_name.map(|name| name.to_string()),
        configs: request
            .config
            .into_iter()
            .map(|config| (config.name.to_string(), config.value.map(|value| value.to_string())))
            .collect(),
    };
    let outcome = context
        .controller
        .write("CreateMirror", move |op| create_mirror(op.image, op.settings, &mirror, op.random))
        .await;
    let mut response = CreateMirrorResponse::default();
    if let Err(error) = outcome {
        (response.error_code, response.error_message) = failure(&error);
    }
    response
}
