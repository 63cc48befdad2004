// SPDX-License-Identifier: GPL-2.0-only
//! Generates the bindings of `perfetto.proto`.

fn main() {
    println!("cargo:rerun-if-changed=perfetto.proto");
    protobuf_codegen::Codegen::new()
        .pure()
        .include(".")
        .input("perfetto.proto")
        .cargo_out_dir("protos")
        .run_from_script();
}
