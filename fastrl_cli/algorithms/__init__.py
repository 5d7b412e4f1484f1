"""The equations of GRPO, DAPO and GSPO as pure functions of flat tensors: no model, no files, no trainer."""
