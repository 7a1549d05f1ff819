//! UpdateFeatures: all updates or none. Version 1 adds validate-only and the kinds of downgrade; 2 answers
//! with one error instead of one for each feature.

use protocol::messages::update_features_response::UpdatableFeatureResult;
use protocol::messages::{UpdateFeaturesRequest, UpdateFeaturesResponse};

use super::{failure, text};
use crate::api::ApiContext;
use crate::control::feature::{self, Update, UpdateKind};

pub async fn handle(
    context: &ApiContext,
    request: UpdateFeaturesRequest,
    version: i16,
) -> UpdateFeaturesResponse {
    let names: Vec<_> = request.feature_updates.iter().map(|update| update.feature.clone()).collect();
    let updates: Vec<Update> = request
        .feature_updates
        .iter()
        .map(|update| Update {
            name: update.feature.to_string(),
            level: update.max_version_level,
            kind: match update.upgrade_type {
                _ if version == 0 && update.allow_downgrade => UpdateKind::UnsafeDowngrade,
                2 => UpdateKind::SafeDowngrade,
                3 => UpdateKind::UnsafeDowngrade,
                _ => UpdateKind::Upgrade,
            },
        })
        .collect();
    let validate_only = request.validate_only;
    let outcome = context
        .controller
        .write("UpdateFeatures", move |op| feature::update(op.image, &updates, validate_only))
        .await;
    let mut response = UpdateFeaturesResponse::default();
    if let Err(error) = &outcome {
        let (code, message) = failure(error);
        response = response.with_error_code(code).with_error_message(message);
    }
    if version < 2 && outcome.is_ok() {
        let done =
            |name| UpdatableFeatureResult::default().with_feature(name).with_error_message(Some(text("")));
        response = response.with_results(names.into_iter().map(done).collect());
    }
    response
}
