// SPDX-License-Identifier: GPL-2.0-only
//! The kernel's command line, read as the kernel reads it. Pure.

/// The parameters before `--`, after which they are init's. Quotes keep blanks together and are left out.
fn parameters(command_line: &str) -> Vec<String> {
    let (mut words, mut word, mut quoted) = (Vec::new(), String::new(), false);
    for char in command_line.chars().chain([' ']) {
        match char {
            '"' => quoted = !quoted,
            char if char.is_whitespace() && !quoted => {
                if word == "--" {
                    break;
                }
                if !word.is_empty() {
                    words.push(std::mem::take(&mut word));
                }
            }
            other => word.push(other),
        }
    }
    words
}

/// The parameters `isolcpus=` that take CPUs out of the scheduling domains. A parameter counts as often as it
/// stands there.
pub fn isolating(command_line: &str) -> Vec<String> {
    let mut found = parameters(command_line);
    found.retain(|parameter| {
        let value = parameter.strip_prefix("isolcpus=");
        value.is_some_and(isolates_domains)
    });
    found
}

/// Flags precede the list of CPUs; where there are none, `domain` is meant. The kernel ignores a
/// parameter whose flag has other characters than letters, and one without CPUs.
fn isolates_domains(value: &str) -> bool {
    let (mut rest, mut domain, mut others) = (value, false, false);
    while rest.starts_with(|char: char| char.is_ascii_alphabetic()) {
        let (flag, after) = rest.split_once(',').unwrap_or((rest, ""));
        match flag {
            "domain" => domain = true,
            "managed_irq" | "nohz" => others = true,
            flag if flag.contains(|char: char| !char.is_ascii_alphabetic() && char != '_') => {
                return false;
            }
            _ => {}
        }
        rest = after;
    }
    !rest.is_empty() && (domain || !others)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_flag_domain_or_none_isolates_from_scheduling() {
        for parameter in [
            "isolcpus=1",
            "isolcpus=domain,1",
            "isolcpus=managed_irq,domain,2-3",
            "isolcpus=nohz,domain,managed_irq,2-3,8",
            "isolcpus=later_flag,1",
        ] {
            assert_eq!(isolating(parameter), [parameter]);
        }
        for parameter in [
            "isolcpus=managed_irq,1",
            "isolcpus=nohz,2-3",
            "isolcpus=nohz,managed_irq,2-3",
            "isolcpus=managed-irq,1",
            "isolcpus=domain,",
            "isolcpus=",
            "nohz_full=1",
            "my.isolcpus=1",
        ] {
            assert!(isolating(parameter).is_empty(), "{parameter}");
        }
    }

    #[test]
    fn every_parameter_counts_quoted_or_not_and_those_of_init_do_not() {
        let line = "quiet isolcpus=managed_irq,1 \"isolcpus=2\" x=\"a isolcpus=3\" isolcpus=\"domain,4\" -- isolcpus=5";
        assert_eq!(isolating(line), ["isolcpus=2", "isolcpus=domain,4"]);
    }
}
