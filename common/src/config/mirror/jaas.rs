//! `sasl.jaas.config`, of which the Plain and Scram modules are read and nothing else: other modules
//! load classes, read files and reach URLs.

const MODULES: &[&str] = &[
    "org.apache.kafka.common.security.plain.PlainLoginModule",
    "org.apache.kafka.common.security.scram.ScramLoginModule",
];
const FORM: &str = "allowed is MODULE required username=\"...\" password=\"...\";";

/// Says what is allowed where the text is something else.
pub(super) fn check(text: &str) -> Result<(), &'static str> {
    let (module, rest) = word(text).ok_or(FORM)?;
    if !MODULES.contains(&module) {
        return Err("allowed are the modules PlainLoginModule and ScramLoginModule of Kafka");
    }
    let (flag, mut rest) = word(rest).ok_or(FORM)?;
    if !matches!(flag, "required" | "requisite" | "sufficient" | "optional") {
        return Err(FORM);
    }
    let mut options = Vec::new();
    loop {
        rest = rest.trim_start();
        if let Some(end) = rest.strip_prefix(';') {
            let complete = options.contains(&"username") && options.contains(&"password");
            return if complete && end.trim().is_empty() { Ok(()) } else { Err(FORM) };
        }
        let (name, value) = rest.split_once('=').ok_or(FORM)?;
        let name = name.trim();
        if !matches!(name, "username" | "password") || options.contains(&name) {
            return Err("allowed are the options username and password, once each");
        }
        options.push(name);
        rest = skip_value(value.trim_start()).ok_or(FORM)?;
    }
}

fn word(text: &str) -> Option<(&str, &str)> {
    text.trim_start()
        .split_once(|letter: char| letter.is_ascii_whitespace())
        .filter(|(word, _)| !word.is_empty())
}

/// The text after a value, which may stand in quotes with escaped ones inside.
fn skip_value(text: &str) -> Option<&str> {
    let Some(quoted) = text.strip_prefix('"') else {
        let end = text.find(|letter: char| letter.is_ascii_whitespace() || letter == ';')?;
        return text.get(end..).filter(|_| end > 0);
    };
    let mut escaped = false;
    for (position, letter) in quoted.char_indices() {
        match letter {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return quoted.get(position + 1..),
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_two_modules_and_two_options_pass() {
        let plain = "org.apache.kafka.common.security.plain.PlainLoginModule";
        for good in [
            format!("{plain} required username=\"a\" password=\"b;\\\"c\";"),
            format!("  {plain}\n  required\n username = alice\n password=secret ;\n"),
            "org.apache.kafka.common.security.scram.ScramLoginModule required password=\"p\" username=\"u\";"
                .to_owned(),
        ] {
            assert_eq!(check(&good), Ok(()), "{good}");
        }
        for bad in [
            String::new(),
            plain.to_owned(),
            format!("{plain} required;"),
            format!("{plain} required username=\"a\";"),
            format!("{plain} required username=\"a\" password=\"b\""),
            format!("{plain} required username=\"a\" password=\"b;"),
            format!("{plain} required username=\"a\" password=\"b\"; {plain} required;"),
            format!("{plain} required username=\"a\" password=\"b\" tokenauth=\"true\";"),
            format!("{plain} required username=\"a\" username=\"c\" password=\"b\";"),
            format!("{plain} always username=\"a\" password=\"b\";"),
            "com.sun.security.auth.module.JndiLoginModule required username=\"a\" password=\"b\";".to_owned(),
            "com.sun.security.auth.module.Krb5LoginModule required keyTab=\"/etc/passwd\";".to_owned(),
        ] {
            assert!(check(&bad).is_err(), "{bad}");
        }
    }

    proptest::proptest! {
        #[test]
        fn no_text_is_a_panic(text in "(org.apache.kafka.common.security.plain.PlainLoginModule )?[a-z=\"; \\\\\u{e9}]{0,40}") {
            let _ = check(&text);
        }
    }
}
