/* SPDX-License-Identifier: Apache-2.0 */
/* clang-format off */
X(tsr_max_pool2d(f32(D(1, 1, 5, 7)), POOL(.kernel = {0})),
  "max_pool2d: kernel is (0,0); give .kernel = {h, w}, each at least 1")
X(tsr_max_pool2d(f32(D(1, 1, 5, 7)), POOL(.kernel = {-1, 2})),
  "max_pool2d: kernel is (-1,2); give .kernel = {h, w}, each at least 1")
X(tsr_max_pool2d(f32(D(1, 1, 5, 7)), POOL(.kernel = {2, -1})),
  "max_pool2d: kernel is (2,-1); each must be at least 1")
X(tsr_max_pool2d(f32(D(1, 1, 5, 7)), POOL(.kernel = {1})),
  "f32 (1,1,5,7)")
X(tsr_max_pool2d(f32(D(1, 1, 5, 7)), POOL(.kernel = {6, 1})),
  "max_pool2d: x (1,1,5,7): kernel 6 is larger than the 5 elements of axis 2 with padding")
X(tsr_max_pool2d(f32(D(1, 1, 5, 7)), POOL(.kernel = {5, 7})),
  "f32 (1,1,1,1)")
X(tsr_max_pool2d(f32(D(1, 1, 5, 7)), POOL(.kernel = {1, 8})),
  "max_pool2d: x (1,1,5,7): kernel 8 is larger than the 7 elements of axis 3 with padding")
X(tsr_max_pool2d(f32(D(1, 1, 5, 7)), POOL(.kernel = {3}, .stride = {-2})),
  "max_pool2d: stride is (-2,0); each must be at least 1")
X(tsr_max_pool2d(f32(D(1, 1, 5, 7)), POOL(.kernel = {3}, .stride = {1, -2})),
  "max_pool2d: stride is (1,-2); each must be at least 1")
X(tsr_max_pool2d(f32(D(1, 1, 5, 7)), POOL(.kernel = {3, 2}, .stride = {0, 1})),
  "f32 (1,1,1,6)")
X(tsr_max_pool2d(f32(D(1, 1, 5, 7)), POOL(.kernel = {3, 2}, .stride = {1})),
  "f32 (1,1,3,6)")
X(tsr_max_pool2d(f32(D(1, 1, 5, 7)), POOL(.kernel = {3, 2})),
  "f32 (1,1,1,3)")
X(tsr_max_pool2d(f32(D(1, 1, 5, 7)), POOL(.kernel = {3}, .padding = {-2})),
  "max_pool2d: padding is (-2,0); each must be at least 0")
X(tsr_max_pool2d(f32(D(1, 1, 5, 7)), POOL(.kernel = {2, 4}, .padding = {1, 2})),
  "f32 (1,1,3,2)")
X(tsr_max_pool2d(f32(D(1, 1, 5, 7)), POOL(.kernel = {2, 4}, .padding = {1, 3})),
  "max_pool2d: padding 3 is more than half the kernel 4: windows would be all padding")
X(tsr_max_pool2d(f32(D(1, 1, 5, 7)), POOL(.kernel = {3, 4}, .padding = {2, 1})),
  "max_pool2d: padding 2 is more than half the kernel 3: windows would be all padding")
X(tsr_max_pool2d(f32(D(1, 5, 7)), POOL(.kernel = {1})),
  "max_pool2d: x is (1,5,7); it must be (n,c,h,w)")
X(tsr_max_pool2d(make(TSR_I64, D(1, 1, 5, 7)), POOL(.kernel = {1})),
  "max_pool2d: operand (1,1,5,7) is i64; floating point is needed: use tsr_cast(x, TSR_F32)")
X(tsr_max_pool2d(f32(D(1, 1, 5, 7)), NULL),
  "max_pool2d: kernel is (0,0); give .kernel = {h, w}, each at least 1")
X(tsr_avg_pool2d(f32(D(1, 1, 5, 7)), POOL(.kernel = {3}, .count_include_pad = 2)),
  "avg_pool2d: count_include_pad is 2; legal are 1 and TSR_OFF")
X(tsr_avg_pool2d(f32(D(1, 1, 5, 7)), POOL(.kernel = {3}, .count_include_pad = 1)),
  "f32 (1,1,1,2)")
X(tsr_avg_pool2d(f32(D(1, 1, 5, 7)), POOL(.kernel = {3}, .count_include_pad = TSR_OFF)),
  "f32 (1,1,1,2)")
X(tsr_avg_pool2d(f32(D(1, 1, 5, 7)), POOL(.kernel = {3}, .count_include_pad = -2)),
  "avg_pool2d: count_include_pad is -2; legal are 1 and TSR_OFF")
X(tsr_avg_pool2d(f32(D(1, 1, 0, 7)), POOL(.kernel = {1})),
  "avg_pool2d: x is (1,1,0,7); planes must not be empty")
X(tsr_avg_pool2d(f32(D(0, 3, 2, 2)), POOL(.kernel = {1})),
  "f32 (0,3,2,2)")
X(tsr_adaptive_avg_pool2d(f32(D(1, 1, 5, 7)), 0, 1),
  "adaptive_avg_pool2d: result size (0,1); each must be at least 1")
X(tsr_adaptive_avg_pool2d(f32(D(1, 1, 5, 7)), 1, -1),
  "adaptive_avg_pool2d: result size (1,-1); each must be at least 1")
X(tsr_adaptive_avg_pool2d(f32(D(1, 1, 5, 7)), 1, 1),
  "f32 (1,1,1,1)")
X(tsr_adaptive_avg_pool2d(f32(D(1, 1, 5, 7)), 6, 9),
  "f32 (1,1,6,9)")
X(tsr_adaptive_avg_pool2d(f32(D(1, 5, 7)), 1, 1),
  "adaptive_avg_pool2d: x is (1,5,7); it must be (n,c,h,w)")
X(tsr_adaptive_avg_pool2d(f32(D(1, 1, 5, 0)), 1, 1),
  "adaptive_avg_pool2d: x is (1,1,5,0); planes must not be empty")
X(tsr_conv2d(f32(D(2, 4, 5, 7)), f32(D(6, 4, 3, 3)), NULL, CONV(.stride = {1, -1})),
  "conv2d: stride is (1,-1); each must be at least 1")
X(tsr_conv2d(f32(D(2, 4, 5, 7)), f32(D(6, 4, 3, 3)), NULL, CONV(.stride = {TSR_OFF})),
  "conv2d: stride is (-1,0); each must be at least 1")
X(tsr_conv2d(f32(D(2, 4, 5, 7)), f32(D(6, 4, 3, 3)), NULL, CONV(.stride = {3, 2})),
  "f32 (2,6,1,3)")
X(tsr_conv2d(f32(D(2, 4, 5, 7)), f32(D(6, 4, 3, 3)), NULL, CONV(.padding = {-2})),
  "conv2d: padding is (-2,0); each must be at least 0")
X(tsr_conv2d(f32(D(2, 4, 5, 7)), f32(D(6, 4, 3, 3)), NULL, CONV(.padding = {TSR_OFF, 1})),
  "f32 (2,6,3,7)")
X(tsr_conv2d(f32(D(2, 4, 5, 7)), f32(D(6, 4, 3, 3)), NULL, CONV(.padding = {1, -2})),
  "conv2d: padding is (1,-2); each must be at least 0")
X(tsr_conv2d(f32(D(2, 4, 5, 7)), f32(D(6, 4, 3, 3)), NULL, CONV(.dilation = {TSR_OFF})),
  "conv2d: dilation is (-1,0); each must be at least 1")
X(tsr_conv2d(f32(D(2, 4, 5, 7)), f32(D(6, 4, 3, 3)), NULL, CONV(.dilation = {2, 3})),
  "f32 (2,6,1,1)")
X(tsr_conv2d(f32(D(2, 4, 5, 7)), f32(D(6, 4, 3, 3)), NULL, CONV(.dilation = {3, 2})),
  "conv2d: x (2,4,5,7): the window of 7 (kernel with dilation) is larger than the 5 elements of axis 2 with padding; pad more")
X(tsr_conv2d(f32(D(2, 4, 5, 7)), f32(D(6, 4, 3, 3)), NULL, CONV(.dilation = {2, 4})),
  "conv2d: x (2,4,5,7): the window of 9 (kernel with dilation) is larger than the 7 elements of axis 3 with padding; pad more")
X(tsr_conv2d(f32(D(2, 4, 5, 7)), f32(D(6, 4, 3, 3)), NULL, CONV(.groups = -1)),
  "conv2d: groups is -1; it must be at least 1")
X(tsr_conv2d(f32(D(2, 4, 5, 7)), f32(D(6, 4, 3, 3)), NULL, CONV(.groups = 1)),
  "f32 (2,6,3,5)")
X(tsr_conv2d(f32(D(2, 4, 5, 7)), f32(D(6, 1, 3, 3)), NULL, CONV(.groups = 4)),
  "conv2d: x (2,4,5,7), weight (6,1,3,3): 4 groups must divide the 4 channels in and the 6 out")
X(tsr_conv2d(f32(D(2, 4, 5, 7)), f32(D(6, 4, 3, 3)), NULL, CONV(.groups = 3)),
  "conv2d: x (2,4,5,7), weight (6,4,3,3): 3 groups must divide the 4 channels in and the 6 out")
X(tsr_conv2d(f32(D(2, 4, 5, 7)), f32(D(6, 3, 3, 3)), NULL, NULL),
  "conv2d: x (2,4,5,7), weight (6,3,3,3): with 1 group the weight must be (6,4,3,3)")
X(tsr_conv2d(f32(D(2, 4, 5, 7)), f32(D(6, 4, 0, 3)), NULL, NULL),
  "conv2d: weight (6,4,0,3): kernel sizes must be at least 1")
X(tsr_conv2d(f32(D(2, 4, 5, 7)), f32(D(6, 4, 3)), NULL, NULL),
  "conv2d: x (2,4,5,7), weight (6,4,3); legal are x (n,c,h,w), weight (o,c/groups,kh,kw)")
X(tsr_conv2d(f32(D(4, 5, 7)), f32(D(6, 4, 3, 3)), NULL, NULL),
  "conv2d: x (4,5,7), weight (6,4,3,3); legal are x (n,c,h,w), weight (o,c/groups,kh,kw)")
X(tsr_conv2d(f32(D(2, 4, 5, 7)), f32(D(6, 4, 5, 7)), f32(D(6)), NULL),
  "f32 (2,6,1,1)")
X(tsr_conv2d(f32(D(2, 4, 5, 7)), f32(D(6, 4, 6, 1)), NULL, NULL),
  "conv2d: x (2,4,5,7): the window of 6 (kernel with dilation) is larger than the 5 elements of axis 2 with padding; pad more")
X(tsr_conv2d(f32(D(2, 4, 5, 7)), f32(D(6, 4, 3, 3)), f32(D(1, 6)), NULL),
  "conv2d: bias is (1,6); it must be (6)")
X(tsr_conv2d(f32(D(2, 4, 5, 7)), f32(D(6, 4, 3, 3)), f32(D(5)), NULL),
  "conv2d: bias is (5); it must be (6)")
X(tsr_conv2d(f32(D(2, 4, 5, 7)), f32(D(6, 4, 3, 3)), make(TSR_F64, D(6)), NULL),
  "conv2d: operands 0 and 2 are f32 and f64; one dtype is needed: use tsr_cast")
X(tsr_conv2d(make(TSR_I64, D(1, 1, 1, 1)), make(TSR_I64, D(1, 1, 1, 1)), NULL, NULL),
  "conv2d: operand (1,1,1,1) is i64; floating point is needed: use tsr_cast(x, TSR_F32)")
X(norm2(.eps = -1e-9),
  "batch_norm: eps is -1e-09; it must be positive (0: 1e-5)")
X(norm2(.eps = 0),
  "f32 (8,6)")
X(norm2(.eps = NAN),
  "batch_norm: eps is nan; it must be positive (0: 1e-5)")
X(norm2(.momentum = 1),
  "f32 (8,6)")
X(norm2(.momentum = 1.5),
  "batch_norm: momentum is 1.5; it must be in (0, 1], or TSR_OFF")
X(norm2(.momentum = TSR_OFF),
  "f32 (8,6)")
X(norm2(.momentum = -0.5),
  "batch_norm: momentum is -0.5; it must be in (0, 1], or TSR_OFF")
X(norm2(.momentum = NAN),
  "batch_norm: momentum is nan; it must be in (0, 1], or TSR_OFF")
X(norm2(.stats = (tsr_bn_stats)2),
  "batch_norm: stats is 2; legal are TSR_BN_GLOBAL and TSR_BN_LOCAL")
X(norm2(.stats = (tsr_bn_stats)-1),
  "batch_norm: stats is -1; legal are TSR_BN_GLOBAL and TSR_BN_LOCAL")
X(norm2(.stats = TSR_BN_LOCAL),
  "f32 (8,6)")
X(norm2(.stats = TSR_BN_LOCAL, .parts = 2),
  "f32 (8,6)")
X(norm2(.stats = TSR_BN_LOCAL, .parts = -1),
  "batch_norm: parts is -1; it must be at least 1, with TSR_BN_LOCAL")
X(norm2(.parts = 1),
  "f32 (8,6)")
X(norm2(.parts = 2),
  "batch_norm: parts is 2; it must be at least 1, with TSR_BN_LOCAL")
X(tsr_batch_norm(f32(D(2, 6, 3)), f32(D(6)), f32(D(6)), NULL, NULL, NULL),
  "batch_norm: x is (2,6,3); it must be (n,c,h,w) or (n,c)")
X(tsr_batch_norm(f32(D(2, 6)), f32(D(6, 1)), f32(D(6)), NULL, NULL, NULL),
  "batch_norm: gamma is (6,1); it must be (6)")
X(tsr_batch_norm(f32(D(2, 6)), f32(D(6)), f32(D(7)), NULL, NULL, NULL),
  "batch_norm: beta is (7); it must be (6)")
X(tsr_batch_norm(f32(D(2, 6)), f32(D(6)), f32(D(6)), NULL, f32(D(6)), NULL),
  "batch_norm: running_var is given and running_mean is not; give both or none")
X(tsr_batch_norm(f32(D(2, 6)), f32(D(6)), f32(D(6)), f32(D(5)), f32(D(6)), NULL),
  "batch_norm: running_mean is (5), with 1 virtual batch and 6 channels; legal are (c) for global statistics and (parts,c) for local ones, both alike")
X(tsr_batch_norm(f32(D(2, 6)), f32(D(6)), f32(D(6)), f32(D(1, 6)), f32(D(6)), NULL),
  "batch_norm: running_mean is no variable; a training graph writes it")
X(tsr_batch_norm(f32(D(2, 6)), f32(D(6)), f32(D(6)), f32(D(2, 6)), f32(D(2, 6)), NULL),
  "batch_norm: running_mean is (2,6), with 1 virtual batch and 6 channels; legal are (c) for global statistics and (parts,c) for local ones, both alike")
X(tsr_batch_norm(f32(D(1, 6)), f32(D(6)), f32(D(6)), NULL, NULL, NULL),
  "f32 (1,6)")
X(tsr_batch_norm(f32(D(1, 6, 1, 2)), f32(D(6)), f32(D(6)), NULL, NULL, NULL),
  "f32 (1,6,1,2)")
X(tsr_batch_norm(f32(D(1, 6, 1, 1)), f32(D(6)), f32(D(6)), NULL, NULL, NULL),
  "f32 (1,6,1,1)")
X(tsr_batch_norm(f32(D(2, 6)), make(TSR_F64, D(6)), f32(D(6)), NULL, NULL, NULL),
  "batch_norm: operands 0 and 1 are f32 and f64; one dtype is needed: use tsr_cast")
X(tsr_batch_norm(make(TSR_I64, D(2, 6)), f32(D(6)), f32(D(6)), NULL, NULL, NULL),
  "batch_norm: operands 0 and 1 are i64 and f32; one dtype is needed: use tsr_cast")
X(infer_norm(D(6), D(6)),
  "f32 (2,6)")
X(infer_norm(D(3, 6), D(3, 6)),
  "f32 (2,6)")
X(infer_norm(D(3, 6), D(2, 6)),
  "batch_norm: running_var is (2,6), with 1 virtual batch and 6 channels; legal are (c) for global statistics and (parts,c) for local ones, both alike")
X(infer_norm(D(0, 6), D(0, 6)),
  "batch_norm: running_mean is (0,6), with 1 virtual batch and 6 channels; legal are (c) for global statistics and (parts,c) for local ones, both alike")
X(infer_norm(D(6), D(5)),
  "batch_norm: running_var is (5), with 1 virtual batch and 6 channels; legal are (c) for global statistics and (parts,c) for local ones, both alike")
X(infer_norm(D(1, 1, 6), D(1, 1, 6)),
  "batch_norm: running_mean is (1,1,6), with 1 virtual batch and 6 channels; legal are (c) for global statistics and (parts,c) for local ones, both alike")
X(tsr_layer_norm(f32(D(2, 4)), f32(D(4)), f32(D(4)), TSR_LAYER_NORM_OPTS(.eps = -1e-9)),
  "layer_norm: eps is -1e-09; it must be positive (0: 1e-5)")
X(tsr_layer_norm(f32(D(2, 4)), f32(D(4)), f32(D(4)), TSR_LAYER_NORM_OPTS(.eps = NAN)),
  "layer_norm: eps is nan; it must be positive (0: 1e-5)")
X(tsr_layer_norm(f32(D(2, 4)), NULL, f32(D(4)), NULL),
  "f32 (2,4)")
X(tsr_layer_norm(f32(D(2, 4)), f32(D(4)), NULL, NULL),
  "f32 (2,4)")
X(tsr_layer_norm(f32(D(2, 4)), f32(D(1)), f32(D(1)), NULL),
  "layer_norm: gamma is (1); it must be (4), the last axis of x (2,4)")
X(tsr_softmax(f32(D(2, 4)), 2),
  "softmax: axis 2 of (2,4); legal are -2 to 1")
X(tsr_softmax(f32(D(2, 4)), -2),
  "f32 (2,4)")
X(tsr_softmax(f32(D(2, 4)), -3),
  "softmax: axis -3 of (2,4); legal are -2 to 1")
X(tsr_softmax(f32(TSR_SCALAR), 0),
  "softmax: axis 0 of a scalar; it has no axes")
X(tsr_softmax(f32(D(2, 0)), 1),
  "f32 (2,0)")
X(tsr_softmax(f32(D(2, 0)), 0),
  "f32 (2,0)")
X(tsr_log_softmax(make(TSR_I32, D(2)), 0),
  "log_softmax: operand (2) is i32; floating point is needed: use tsr_cast(x, TSR_F32)")
X(entropy(D(8, 10), D(8), .label_smoothing = -0.1),
  "cross_entropy: label_smoothing is -0.1; it must be in [0, 1)")
X(entropy(D(8, 10), D(8), .label_smoothing = 0.999),
  "f32 ()")
X(entropy(D(8, 10), D(8), .label_smoothing = NAN),
  "cross_entropy: label_smoothing is nan; it must be in [0, 1)")
X(entropy(D(8, 10), D(8), .reduction = (tsr_reduction)3),
  "cross_entropy: reduction is 3; legal are TSR_MEAN, TSR_SUM and TSR_NONE")
X(entropy(D(8, 10), D(8), .reduction = (tsr_reduction)-1),
  "cross_entropy: reduction is -1; legal are TSR_MEAN, TSR_SUM and TSR_NONE")
X(entropy(D(8, 10), D(8), .reduction = TSR_NONE),
  "f32 (8)")
X(entropy(D(8, 10), D(8), .has_ignore_index = true, .ignore_index = 100),
  "f32 ()")
X(entropy(D(8, 0), D(8), .reduction = TSR_SUM),
  "cross_entropy: logits (8,0) have no classes")
X(entropy(D(0, 3), D(0), .reduction = TSR_SUM),
  "f32 ()")
X(entropy(D(8), D(8), .reduction = TSR_SUM),
  "cross_entropy: logits (8), labels (8); legal are logits (n,c), labels (n)")
X(entropy(D(8, 10), D(8, 10), .reduction = TSR_SUM),
  "cross_entropy: logits (8,10), labels (8,10); legal are logits (n,c), labels (n)")
X(entropy(D(8, 10), D(10), .reduction = TSR_SUM),
  "cross_entropy: logits (8,10), labels (10); legal are logits (n,c), labels (n)")
X(tsr_cross_entropy(make(TSR_I64, D(8, 10)), make(TSR_I64, D(8)), TSR_MEAN),
  "cross_entropy: operand (8,10) is i64; floating point is needed: use tsr_cast(x, TSR_F32)")
X(tsr_cross_entropy(f32(D(8, 10)), make(TSR_I64, D(8)), (tsr_reduction)3),
  "cross_entropy: reduction is 3; legal are TSR_MEAN, TSR_SUM and TSR_NONE")
X(tsr_mse_loss(f32(D(8)), f32(D(8)), (tsr_reduction)3),
  "mse_loss: reduction is 3; legal are TSR_MEAN, TSR_SUM and TSR_NONE")
X(tsr_mse_loss(f32(D(8)), f32(D(8)), (tsr_reduction)-1),
  "mse_loss: reduction is -1; legal are TSR_MEAN, TSR_SUM and TSR_NONE")
X(tsr_mse_loss(f32(D(8)), f32(D(8)), TSR_NONE),
  "f32 (8)")
X(tsr_mse_loss(f32(D(8)), make(TSR_F64, D(8)), TSR_MEAN),
  "mse_loss: operands 0 and 1 are f32 and f64; one dtype is needed: use tsr_cast")
X(tsr_mse_loss(make(TSR_I64, D(8)), make(TSR_I64, D(8)), TSR_MEAN),
  "mse_loss: operand (8) is i64; floating point is needed: use tsr_cast(x, TSR_F32)")
X(tsr_attention(f32(D(1, 2, 3, 4)), f32(D(1, 2, 5, 4)), f32(D(1, 2, 5, 6)), TSR_ATTENTION_OPTS(.dropout = -0.1)),
  "attention: dropout is -0.1; it must be in [0, 1)")
X(tsr_attention(f32(D(1, 2, 3, 4)), f32(D(1, 2, 5, 4)), f32(D(1, 2, 5, 6)), TSR_ATTENTION_OPTS(.dropout = 1)),
  "attention: dropout is 1; it must be in [0, 1)")
X(tsr_attention(f32(D(1, 2, 3, 4)), f32(D(1, 2, 5, 4)), f32(D(1, 2, 5, 6)), TSR_ATTENTION_OPTS(.dropout = 0.5)),
  "f32 (1,2,3,6)")
X(tsr_attention(f32(D(1, 2, 3, 4)), f32(D(1, 2, 5, 4)), f32(D(1, 2, 5, 6)), TSR_ATTENTION_OPTS(.scale = NAN)),
  "attention: scale is nan; it must be finite (0: 1/sqrt(d))")
X(tsr_attention(f32(D(1, 2, 3, 4)), f32(D(1, 2, 5, 4)), f32(D(1, 2, 5, 6)), TSR_ATTENTION_OPTS(.scale = -INFINITY)),
  "attention: scale is -inf; it must be finite (0: 1/sqrt(d))")
X(tsr_attention(f32(D(1, 2, 3, 4)), f32(D(1, 3, 5, 4)), f32(D(1, 2, 5, 6)), NULL),
  "attention: queries (1,2,3,4), keys (1,3,5,4), values (1,2,5,6); legal are (b,h,s,d), (b,h,t,d), (b,h,t,e)")
X(tsr_attention(f32(D(1, 2, 3, 4)), f32(D(2, 2, 5, 4)), f32(D(2, 2, 5, 6)), NULL),
  "attention: queries (1,2,3,4), keys (2,2,5,4), values (2,2,5,6); legal are (b,h,s,d), (b,h,t,d), (b,h,t,e)")
X(tsr_attention(f32(D(1, 2, 3, 4)), f32(D(1, 2, 5, 4)), f32(D(1, 2, 4, 6)), NULL),
  "attention: queries (1,2,3,4), keys (1,2,5,4), values (1,2,4,6); legal are (b,h,s,d), (b,h,t,d), (b,h,t,e)")
X(tsr_attention(f32(D(1, 2, 3, 4)), f32(D(1, 2, 5, 4)), f32(D(1, 3, 5, 6)), NULL),
  "attention: queries (1,2,3,4), keys (1,2,5,4), values (1,3,5,6); legal are (b,h,s,d), (b,h,t,d), (b,h,t,e)")
X(tsr_attention(f32(D(1, 2, 3, 4)), f32(D(1, 2, 5, 4)), f32(D(2, 5, 6)), NULL),
  "attention: queries (1,2,3,4), keys (1,2,5,4), values (2,5,6); legal are (b,h,s,d), (b,h,t,d), (b,h,t,e)")
X(tsr_dropout(f32(D(3)), -0.1),
  "dropout: p is -0.1; it must be in [0, 1)")
X(tsr_dropout(f32(D(3)), 0.999),
  "f32 (3)")
X(tsr_dropout(make(TSR_I64, D(3)), 0.5),
  "dropout: operand (3) is i64; floating point is needed: use tsr_cast(x, TSR_F32)")
X(tsr_norm(f32(D(3, 4)), 0, TSR_AXES(0), false),
  "norm: p is 0; it must be above 0 (INFINITY: the maximum)")
X(tsr_norm(f32(D(3, 4)), -1, TSR_AXES(0), false),
  "norm: p is -1; it must be above 0 (INFINITY: the maximum)")
X(tsr_norm(f32(D(3, 4)), NAN, TSR_AXES(0), false),
  "norm: p is nan; it must be above 0 (INFINITY: the maximum)")
X(tsr_norm(f32(D(3, 4)), INFINITY, TSR_AXES(0), false),
  "f32 (4)")
X(tsr_norm(f32(D(3, 0)), INFINITY, TSR_AXES(1), false),
  "norm: (3,0) over axes of size 0; nothing has no norm: name axes with elements")
X(tsr_norm(f32(D(3, 4)), 0.5, TSR_AXES(0, 1), true),
  "f32 (1,1)")
X(tsr_sum(f32(D(3, 4)), TSR_AXES(-3), false),
  "sum: axis -3 of (3,4); legal are -2 to 1")
X(tsr_sum(f32(D(3, 4)), TSR_AXES(-2), false),
  "f32 (4)")
X(tsr_sum(f32(TSR_SCALAR), TSR_AXES(0), false),
  "sum: axis 0 of a scalar; it has no axes")
X(tsr_sum(make(TSR_BOOL, D(3)), TSR_ALL_AXES, false),
  "sum: operand (3) is bool; legal are floating point, i32 and i64: use tsr_cast")
X(tsr_sum(make(TSR_I32, D(3)), TSR_ALL_AXES, false),
  "i32 ()")
X(tsr_mean(f32(D(0, 4)), TSR_AXES(0), false),
  "f32 (4)")
X(tsr_min(f32(D(0, 4)), TSR_AXES(1), false),
  "f32 (0)")
X(tsr_min(f32(D(0, 4)), TSR_AXES(0), false),
  "min: (0,4) over axes of size 0; nothing has no min: name axes with elements")
X(tsr_argmax(f32(D(3, 4)), 2),
  "argmax: axis 2 of (3,4); legal are -2 to 1")
X(tsr_argmax(f32(D(3, 0)), 1),
  "argmax: axis 1 of (3,0) has size 0; nothing has no maximum")
X(tsr_argmax(f32(D(0, 3)), 1),
  "i64 (0)")
X(tsr_cumsum(f32(D(3, 4)), -3),
  "cumsum: axis -3 of (3,4); legal are -2 to 1")
X(tsr_variance(f32(D(3, 4)), TSR_AXES(0), false, 3),
  "variance: of 3 elements with correction 3; it must be at least 0 and less than their number")
X(tsr_variance(f32(D(3, 4)), TSR_AXES(0), false, 2.5),
  "f32 (4)")
X(tsr_variance(f32(D(3, 4)), TSR_AXES(0), true, 0),
  "f32 (1,4)")
X(tsr_std(f32(D(3, 4)), TSR_AXES(0), false, NAN),
  "std: of 3 elements with correction nan; it must be at least 0 and less than their number")
X(tsr_variance(f32(D(0, 4)), TSR_AXES(0), false, 0),
  "variance: of 0 elements with correction 0; it must be at least 0 and less than their number")
X(tsr_matmul(f32(D(3)), f32(D(3, 4))),
  "matmul: (3) x (3,4): operand 0 has 1 axis; matrices have 2, or more of which the last 2 are multiplied: use tsr_reshape")
X(tsr_matmul(f32(D(2, 3, 4)), f32(D(4, 5))),
  "f32 (2,3,5)")
X(tsr_matmul(f32(D(2, 1, 3, 4)), f32(D(5, 4, 6))),
  "f32 (2,5,3,6)")
X(tsr_matmul(f32(D(3, 4)), make(TSR_F64, D(4, 5))),
  "matmul: operands 0 and 1 are f32 and f64; one dtype is needed: use tsr_cast")
X(tsr_matmul_t(f32(D(3, 4)), f32(D(4, 5)), true, false),
  "matmul_t: (3,4)^T x (4,5): inner sizes 3 and 4 differ; transpose an operand (tsr_matmul_t) or change a shape")
X(tsr_linear(f32(D(3)), f32(D(5, 3)), NULL),
  "f32 (5)")
X(tsr_linear(f32(TSR_SCALAR), f32(D(5, 3)), NULL),
  "linear: x (), weight (5,3); legal are x (...,k), weight (n,k)")
X(tsr_linear(f32(D(2, 3)), f32(D(5, 3, 1)), NULL),
  "linear: x (2,3), weight (5,3,1); legal are x (...,k), weight (n,k)")
X(tsr_linear(f32(D(2, 3)), f32(D(3)), NULL),
  "linear: x (2,3), weight (3); legal are x (...,k), weight (n,k)")
X(tsr_linear(f32(D(2, 3)), f32(D(5, 3)), f32(D(1, 5))),
  "linear: bias is (1,5); it must be (5)")
X(tsr_reshape(f32(D(2, 3)), D(-2, 3)),
  "reshape: (2,3) to (-2,3); sizes are >= 0, and one axis may be -1 (the rest)")
X(tsr_reshape(f32(D(2, 3)), D(-1, 4)),
  "reshape: (2,3) has 6 elements, which do not divide by the known axes of (-1,4)")
X(tsr_reshape(f32(D(2, 0)), D(-1, 0)),
  "reshape: (2,0) has 0 elements, which do not divide by the known axes of (-1,0)")
X(tsr_reshape(f32(D(2, 3)), TSR_SCALAR),
  "reshape: (2,3) has 6 elements, which are not those of ()")
X(tsr_reshape(f32(D(1)), TSR_SCALAR),
  "f32 ()")
X(tsr_flatten(f32(D(2, 3)), 2),
  "flatten: axis 2 of (2,3); legal are -2 to 1")
X(tsr_flatten(f32(D(2, 3)), -1),
  "f32 (2,3)")
X(tsr_flatten(f32(D(2, 3)), -3),
  "flatten: axis -3 of (2,3); legal are -2 to 1")
X(tsr_flatten(f32(TSR_SCALAR), 0),
  "f32 (1)")
X(tsr_transpose(f32(D(2, 3)), 0, 2),
  "transpose: axis 2 of (2,3); legal are -2 to 1")
X(tsr_transpose(f32(D(2, 3)), -3, 0),
  "transpose: axis -3 of (2,3); legal are -2 to 1")
X(tsr_permute(f32(D(2, 3)), TSR_AXES(0)),
  "permute: 1 axes for (2,3), which has 2; name each once")
X(tsr_permute(f32(D(2, 3)), TSR_AXES(0, 0)),
  "permute: axis 0 of (2,3) is named twice")
X(tsr_permute(f32(D(2, 3)), TSR_AXES(0, 2)),
  "permute: axis 2 of (2,3); legal are -2 to 1")
X(tsr_permute(f32(D(2, 3)), TSR_AXES(-1, 0)),
  "f32 (3,2)")
X(tsr_broadcast_to(f32(D(2, 3)), D(3)),
  "broadcast_to: (2,3) to (3); from the right, each axis must be equal or grow from 1")
X(tsr_broadcast_to(f32(D(2, 3)), D(2, -1)),
  "broadcast_to: axis 1 of (2,-1) is negative; sizes are >= 0")
X(tsr_broadcast_to(f32(D(1, 3)), D(0, 3)),
  "f32 (0,3)")
X(tsr_broadcast_to(f32(D(2, 3)), D(1, 2, 3)),
  "f32 (1,2,3)")
X(tsr_slice(f32(D(5, 6)), D(1, -2), D(4, INT64_MAX), D(2, 1)),
  "f32 (2,2)")
X(tsr_slice(f32(D(5)), D(7), D(9), TSR_SCALAR),
  "f32 (0)")
X(tsr_slice(f32(D(5)), D(-9), D(-1), TSR_SCALAR),
  "f32 (4)")
X(tsr_slice(f32(D(5)), D(4), D(2), TSR_SCALAR),
  "f32 (0)")
X(tsr_slice(f32(D(5)), D(0), D(5), D(5)),
  "f32 (1)")
X(tsr_slice(f32(D(5)), D(0), D(5), D(6)),
  "f32 (1)")
X(tsr_slice(f32(D(5)), D(0), D(5), D(-1)),
  "slice: step -1 of axis 0; steps are >= 1")
X(tsr_slice(f32(D(5)), D(-1), D(5), TSR_SCALAR),
  "f32 (1)")
X(tsr_slice(f32(D(5)), D(INT64_MIN), D(INT64_MAX), TSR_SCALAR),
  "f32 (5)")
X(tsr_slice(f32(D(5, 5)), D(0, 0), D(5), TSR_SCALAR),
  "slice: 2 starts, 1 ends and 0 steps for (5,5); one of each for each axis (or no steps) is needed")
X(tsr_narrow(f32(D(5)), 0, -2, 2),
  "f32 (2)")
X(tsr_narrow(f32(D(5)), 0, -2, 3),
  "narrow: 3 elements from -2 on of axis 0 of (5); it has 5")
X(tsr_narrow(f32(D(5)), 0, -6, 1),
  "narrow: 1 elements from -6 on of axis 0 of (5); it has 5")
X(tsr_narrow(f32(D(5)), 0, 5, 0),
  "f32 (0)")
X(tsr_narrow(f32(D(5)), 0, 6, 0),
  "narrow: 0 elements from 6 on of axis 0 of (5); it has 5")
X(tsr_narrow(f32(D(5)), 0, 1, -1),
  "narrow: -1 elements from 1 on of axis 0 of (5); it has 5")
X(tsr_narrow(f32(D(5)), 1, 0, 1),
  "narrow: axis 1 of (5); legal are -1 to 0")
X(tsr_pad(f32(D(5)), D(1, 2), D(1), 0),
  "pad: 2 sizes before and 1 after for (5); one for each axis is needed")
X(tsr_pad(f32(D(5)), D(1), D(-1), 0),
  "pad: 1 before and -1 after axis 0; sizes are >= 0: tsr_slice takes away")
X(tsr_pad(f32(D(5)), D(0), D((int64_t)1 << 56), 0),
  "pad: a result of shape (72057594037927941); at most 2^56 elements are possible")
X(tsr_pad(f32(D(5)), D(0), D(((int64_t)1 << 56) - 5), 0),
  "f32 (72057594037927936)")
X(tsr_pad(make(TSR_I64, D(5)), D(1), D(2), -3),
  "i64 (8)")
X(tsr_concat(0, (tsr_tensor *[]){NULL}, 0),
  "concat: of 0 tensors; at least one is needed")
X(tsr_concat(1, (tsr_tensor *[]){f32(D(2, 3))}, 2),
  "concat: axis 2 of (2,3); legal are -2 to 1")
X(tsr_concat(1, (tsr_tensor *[]){f32(D(2, 3))}, -2),
  "f32 (2,3)")
X(tsr_concat(2, (tsr_tensor *[]){f32(D(2, 3)), f32(D(3))}, 0),
  "concat: operands 0 and 1 are (2,3) and (3); all axes but 0 must be alike")
X(tsr_concat(2, (tsr_tensor *[]){f32(D(2, 3)), f32(D(0, 3))}, 0),
  "f32 (2,3)")
X(tsr_stack(2, (tsr_tensor *[]){f32(D(2)), f32(D(2))}, 2),
  "stack: new axis 2 for (2); legal are -2 to 1, of at most 8 axes")
X(tsr_stack(2, (tsr_tensor *[]){f32(D(2)), f32(D(2))}, 1),
  "f32 (2,2)")
X(tsr_stack(2, (tsr_tensor *[]){f32(D(2)), f32(D(2))}, -2),
  "f32 (2,2)")
X(tsr_stack(2, (tsr_tensor *[]){f32(D(2)), f32(D(2))}, -3),
  "stack: new axis -3 for (2); legal are -2 to 1, of at most 8 axes")
X(tsr_stack(1, (tsr_tensor *[]){f32(D(1, 1, 1, 1, 1, 1, 1, 1))}, 0),
  "stack: new axis 0 for (1,1,1,1,1,1,1,1); legal are -9 to 8, of at most 8 axes")
X(split_of(D(5), 2, 0),
  "f32 (2)")
X(split_of(D(5), 6, 0),
  "f32 (0)")
X(split_of(D(5), 5, 0),
  "f32 (1)")
X(split_of(D(5), 2, 1),
  "split_axis: axis 1 of (5); legal are -1 to 0")
X(split_of(D(5, 0), 3, -1),
  "f32 (5,0)")
X(tsr_triu(f32(D(2, 3)), -5),
  "f32 (2,3)")
X(tsr_tril(make(TSR_BOOL, D(2, 3)), 0),
  "bool (2,3)")
X(tsr_embedding(f32(D(5, 3)), make(TSR_I64, D(2)), EMBED(.padding_idx = 4)),
  "f32 (2,3)")
X(tsr_embedding(f32(D(5, 3)), make(TSR_I64, D(2)), EMBED(.padding_idx = -5)),
  "f32 (2,3)")
X(tsr_embedding(f32(D(5, 3)), make(TSR_I64, D(2)), EMBED(.padding_idx = -6)),
  "embedding: padding_idx is -6; legal for (5,3) are -5 to 4")
X(tsr_embedding(f32(D(0, 3)), make(TSR_I64, D(2)), NULL),
  "f32 (2,3)")
X(tsr_embedding(f32(D(5, 3, 1)), make(TSR_I64, D(2)), NULL),
  "embedding: the table is (5,3,1); it must be (v,d)")
X(tsr_embedding(make(TSR_I64, D(5, 3)), make(TSR_I64, D(2)), NULL),
  "i64 (2,3)")
X(tsr_gather(f32(D(5, 3)), -3, make(TSR_I64, D(2))),
  "gather: axis -3 of (5,3); legal are -2 to 1")
X(tsr_gather(f32(D(5, 3)), -2, make(TSR_I64, D(2))),
  "f32 (2,3)")
X(tsr_gather(f32(D(5, 3)), 1, make(TSR_I64, D(1, 1, 1, 1, 1, 1, 1))),
  "f32 (5,1,1,1,1,1,1,1)")
X(tsr_gather(f32(D(5, 3)), 0, make(TSR_I32, D(2))),
  "gather: ids are i32; i64 is needed: use tsr_cast(ids, TSR_I64)")
X(tsr_one_hot(make(TSR_I64, D(2)), 1, TSR_F32),
  "f32 (2,1)")
X(tsr_one_hot(make(TSR_I64, D(2)), -1, TSR_F32),
  "one_hot: -1 classes; at least one is needed")
X(tsr_one_hot(make(TSR_I64, D(2)), 3, (tsr_dtype)77),
  "one_hot: no such dtype: 77")
X(tsr_one_hot(make(TSR_I64, D(1, 1, 1, 1, 1, 1, 1, 1)), 3, TSR_F32),
  "one_hot: ids (1,1,1,1,1,1,1,1) have no room for one more axis; at most 8 are possible")
X(tsr_one_hot(make(TSR_I64, D(1, 1, 1, 1, 1, 1, 1)), 3, TSR_F32),
  "f32 (1,1,1,1,1,1,1,3)")
X(tsr_uniform(g, "u", TSR_F32, D(3), place, TSR_B, 1, 1),
  "f32 (3)")
X(tsr_uniform(g, "u", TSR_I64, D(3), place, TSR_B, 0, 1),
  "uniform: 'u' is i64; floating point is drawn: use tsr_cast afterwards")
X(tsr_uniform(g, "u", TSR_F32, D(-3), place, TSR_B, 0, 1),
  "uniform: axis 0 of (-3) is negative; sizes are >= 0")
X(tsr_uniform(g, "u", TSR_F32, D(3), NULL, TSR_B, 0, 1),
  "uniform: no placement")
X(tsr_uniform(g, "", TSR_F32, D(3), place, TSR_B, 0, 1),
  "uniform: a name is needed, from which the numbers follow")
X(tsr_uniform(g, NULL, TSR_F32, D(3), place, TSR_B, 0, 1),
  "uniform: a name is needed, from which the numbers follow")
X(tsr_uniform(g, "u", TSR_F32, D(3), place, TSR_P, 0, 1),
  "uniform: signature P for a new tensor (3); legal are B and S(i) of its 1 axes")
X(tsr_uniform(g, "u", TSR_F32, D(3), place, TSR_S(1), 0, 1),
  "uniform: signature S(1) for a new tensor (3); legal are B and S(i) of its 1 axes")
X(tsr_uniform(g, "u", TSR_F32, D(3), place, GRID_SBP, 0, 1),
  "uniform: signature (S(0),B) has 2 entries, but placement cpu:[0,1,2,3] has 1")
X(tsr_normal(g, "n", TSR_F32, D(3), place, TSR_B, 0, -1),
  "normal: 'n': std is -1; it must not be negative")
X(tsr_normal(g, "n", TSR_F32, D(3), place, TSR_B, 0, 0),
  "f32 (3)")
X(tsr_normal(g, "n", TSR_F32, D(3), place, TSR_B, 0, INFINITY),
  "normal: 'n': 0 and inf; both must be finite")
X(tsr_full(g, (tsr_dtype)77, D(3), place, TSR_B, 0),
  "full: no such dtype: 77")
X(tsr_full(g, TSR_BOOL, D(3), place, TSR_B, 1),
  "bool (3)")
X(tsr_full(g, TSR_U8, D(3), place, TSR_B, 255),
  "u8 (3)")
X(tsr_full(g, TSR_F32, D(3), NULL, TSR_B, 0),
  "full: no placement")
X(tsr_arange(g, TSR_F32, -1, 0, 1, place, TSR_B),
  "arange: axis 0 of (-1) is negative; sizes are >= 0")
X(tsr_arange(g, TSR_F32, 3, INFINITY, 1, place, TSR_B),
  "arange: from inf in steps of 1; both must be finite")
X(tsr_arange(g, TSR_F32, 3, 0, NAN, place, TSR_B),
  "arange: from 0 in steps of nan; both must be finite")
X(tsr_arange(g, TSR_U8, 257, 0, 1, place, TSR_B),
  "arange: 257 numbers from 0 in steps of 1 are not all u8")
X(tsr_constant(g, TSR_F32, D(0), NULL, place, TSR_B),
  "f32 (0)")
X(tsr_cast(f32(D(3)), TSR_DTYPE_NONE),
  "cast: no such dtype: 0")
X(tsr_gelu(f32(D(3)), (tsr_gelu_form)-1),
  "gelu: form is -1; legal are TSR_GELU_ERF and TSR_GELU_TANH")
X(tsr_pow_scalar(f32(D(3)), NAN),
  "pow_scalar: the scalar is NaN; a number is needed")
X(tsr_add_scalar(make(TSR_I64, D(3)), 1),
  "add_scalar: operand (3) is i64; floating point is needed: use tsr_cast(x, TSR_F32)")
X(tsr_div_scalar(f32(D(3)), 0),
  "f32 (3)")
X(tsr_where(make(TSR_BOOL, D(3)), f32(D(3)), f32(D(1))),
  "f32 (3)")
X(tsr_where(make(TSR_BOOL, D(3)), f32(D(2)), f32(D(1))),
  "where: condition (3), (2) and (1); from the right, sizes must be equal or 1")
X(tsr_less(f32(D(3)), make(TSR_I64, D(3))),
  "less: operands 0 and 1 are f32 and i64; one dtype is needed: use tsr_cast")
X(tsr_less(make(TSR_BOOL, D(3)), make(TSR_BOOL, D(3))),
  "bool (3)")
X(tsr_mul(make(TSR_U8, D(3)), make(TSR_U8, D(3))),
  "mul: operands are u8; legal are floating point, i32 and i64: use tsr_cast")
X(tsr_add(f32(D(3)), NULL),
  "add: operand 1 is missing")
X(tsr_relu(NULL),
  "")
X(tsr_causal_mask(f32(D(2, 3)), 0, INFINITY),
  "f32 (2,3)")
X(tsr_to_global(f32(D(4)), place, TSR_S(0)),
  "f32 (4)")
X(tsr_to_global(f32(D(4)), place, TSR_S(1)),
  "to_global: S(1) splits an axis that shape (4) doesn't have; legal are B, P and S(i) with i below its number of axes")
X(tsr_to_global(f32(D(4)), place, TSR_P),
  "f32 (4)")
X(tsr_to_global(make(TSR_BOOL, D(4)), place, TSR_P),
  "to_global: P(sum) of bool; use P(max) for any, P(min) for all")
X(tsr_to_global(f32(D(4)), NULL, TSR_S(0)),
  "f32 (4)")
X(tsr_to_global(f32(D(4)), place, GRID_SBP),
  "to_global: signature (S(0),B) has 2 entries, but placement cpu:[0,1,2,3] has 1 dimension")
X(tsr_input(g, "", TSR_F32, D(3), place, TSR_B),
  "input: a name is needed, to feed it by")
X(tsr_input(g, NULL, TSR_F32, D(3), place, TSR_B),
  "input: a name is needed, to feed it by")
X(tsr_input(g, "x", TSR_F32, D(3), NULL, TSR_B),
  "input 'x': no placement")
X(tsr_input(g, "x", TSR_DTYPE_NONE, D(3), place, TSR_B),
  "input 'x': no such dtype: 0")
X(tsr_input(g, "x", TSR_F32, D(3, -1), place, TSR_B),
  "input 'x': axis 1 is -1; sizes are >= 0")
X(tsr_input(g, "x", TSR_F32, D(3), place, TSR_S(-1)),
  "x: S(-1) splits an axis that shape (3) doesn't have; legal are B, P and S(i) with i below its number of axes")
X(tsr_input(g, "x", TSR_F32, D(3), place, TSR_S(1)),
  "x: S(1) splits an axis that shape (3) doesn't have; legal are B, P and S(i) with i below its number of axes")
X(tsr_input(g, "x", TSR_F32, NINE, place, TSR_B),
  "input 'x': 9 axes; at most 8 are possible")
X(tsr_input(g, "x", TSR_F32, D(3), place, GRID_SBP),
  "x: signature (S(0),B) has 2 entries, but placement cpu:[0,1,2,3] has 1 dimension")
X(tsr_input(g, "x", TSR_BOOL, D(3), place, TSR_P),
  "x: P(sum) of bool; use P(max) for any, P(min) for all")
X(tsr_input(g, "x", TSR_F32, D(3), place, REDUCTION(9)),
  "x: P of reduction 9; legal are P(sum), P(max) and P(min)")
X(tsr_input(g, "x", TSR_F32, D(3), place, REDUCTION(TSR_REDUCE_MAX)),
  "f32 (3)")
X(tsr_input(g, "x", TSR_F32, D(3), grid, MIXED),
  "x: (P,P(max)) mixes kinds of P, whose order would matter; one signature has one kind")
X(tsr_input(g, "x", TSR_F32, D(3), grid, GRID_SBP),
  "f32 (3)")
X(tsr_from_local(g, "x", TSR_F32, D(3), grid, TSR_AUTO),
  "from_local 'x': what the ranks hold has to be said: a signature with 2 entries for placement cpu:[[0,1],[2,3]]")
X(tsr_from_local(g, "x", TSR_F32, D(3), place, TSR_AUTO),
  "f32 (3)")
X(tsr_from_local(g, "x", TSR_F32, D(3), NULL, TSR_B),
  "from_local 'x': no placement")
X(tsr_input(NULL, "x", TSR_F32, D(3), place, TSR_B),
  "input: no graph")
X(tsr_from_local(NULL, "x", TSR_F32, D(3), place, TSR_B),
  "from_local: no graph")
X(output_of("", f32(D(3)), place, TSR_B),
  "output: a name is needed, to fetch it by")
X(output_of(NULL, f32(D(3)), place, TSR_B),
  "output: a name is needed, to fetch it by")
X(output_of("y", NULL, place, TSR_B),
  "output 'y': no tensor")
X(output_of("y", f32(D(3)), NULL, TSR_AUTO),
  "f32 (3)")
X(output_of("y", f32(D(3)), place, TSR_S(1)),
  "y: S(1) splits an axis that shape (3) doesn't have; legal are B, P and S(i) with i below its number of axes")
X(output_of("y", f32(D(3)), grid, TSR_B),
  "y: signature B has 1 entries, but placement cpu:[[0,1],[2,3]] has 2 dimensions")
X(output_of("x0", f32(D(3)), place, TSR_B),
  "two inputs or outputs are named 'x0' (the first one at declared.h:37)")
X(tsr_rank_sum(f32(D(2)), NULL),
  "rank_sum: the graph is one of all ranks; legal in local graphs alone (here tsr_sum of a tensor that is split over the ranks is such a sum)")
X(local_norm(D(5, 6, 2, 3), 2),
  "f32 (5,6,2,3)")
X(local_norm(D(5, 6), 3),
  "f32 (5,6)")
X(local_norm(D(6, 4, 2, 2), 3),
  "f32 (6,4,2,2)")
X(local_norm(D(4, 6), 4),
  "f32 (4,6)")
X(norm2(),
  "f32 (8,6)")
X(tsr_batch_norm(f32(D(6, 4, 2, 3)), f32(D(4)), f32(D(4)), NULL, NULL, NULL),
  "f32 (6,4,2,3)")
X(tsr_conv2d(f32(D(2, 4, 6, 8)), f32(D(6, 4, 2, 2)), f32(D(6)), CONV(.stride = {2})),
  "f32 (2,6,3,4)")
X(tsr_conv2d(f32(D(2, 4, 6, 8)), f32(D(6, 4, 1, 1)), NULL, NULL),
  "f32 (2,6,6,8)")
X(tsr_conv2d(f32(D(2, 4, 6, 8)), f32(D(6, 2, 3, 1)), f32(D(6)), CONV(.stride = {3, 1}, .groups = 2)),
  "f32 (2,6,2,8)")
X(tsr_conv2d(f32(D(2, 6, 5, 5)), f32(D(6, 1, 3, 3)), NULL, CONV(.padding = {1}, .groups = 6)),
  "f32 (2,6,5,5)")
X(tsr_max_pool2d(f32(D(2, 4, 6, 9)), POOL(.kernel = {2, 3})),
  "f32 (2,4,3,3)")
X(tsr_avg_pool2d(f32(D(2, 4, 6, 9)), POOL(.kernel = {2, 3})),
  "f32 (2,4,3,3)")
X(tsr_avg_pool2d(f32(D(2, 4, 6, 9)), POOL(.kernel = {3}, .stride = {1}, .padding = {1})),
  "f32 (2,4,6,9)")
X(tsr_adaptive_avg_pool2d(f32(D(2, 4, 6, 9)), 2, 3),
  "f32 (2,4,2,3)")
X(tsr_adaptive_avg_pool2d(f32(D(2, 4, 6, 9)), 1, 4),
  "f32 (2,4,1,4)")
X(tsr_linear(f32(D(4, 6, 3)), f32(D(5, 3)), f32(D(5))),
  "f32 (4,6,5)")
X(tsr_matmul_t(f32(D(3, 4, 6)), f32(D(3, 5, 4)), true, true),
  "f32 (3,6,5)")
X(tsr_softmax(f32(D(2, 4, 6)), 1),
  "f32 (2,4,6)")
X(tsr_log_softmax(f32(D(2, 4, 6)), -1),
  "f32 (2,4,6)")
X(tsr_layer_norm(f32(D(2, 4, 6)), f32(D(4, 6)), f32(D(4, 6)), NULL),
  "layer_norm: gamma is (4,6); it must be (6), the last axis of x (2,4,6)")
X(tsr_layer_norm(f32(D(2, 4, 6)), NULL, NULL, NULL),
  "f32 (2,4,6)")
X(entropy(D(8, 10), D(8), .label_smoothing = 0.1),
  "f32 ()")
X(tsr_max(f32(D(2, 4, 6)), TSR_AXES(1), false),
  "f32 (2,6)")
X(tsr_min(f32(D(2, 4, 6)), TSR_AXES(0, 2), true),
  "f32 (1,4,1)")
X(tsr_mean(f32(D(2, 4, 6)), TSR_AXES(0, 2), true),
  "f32 (1,4,1)")
X(tsr_std(f32(D(2, 4, 6)), TSR_AXES(1), false, 1),
  "f32 (2,6)")
X(tsr_norm(f32(D(2, 4, 6)), 2, TSR_ALL_AXES, false),
  "f32 ()")
X(tsr_norm(f32(D(2, 4, 6)), 3, TSR_AXES(1), false),
  "f32 (2,6)")
X(tsr_norm(f32(D(2, 4, 6)), 1, TSR_AXES(1), false),
  "f32 (2,6)")
X(tsr_cumsum(f32(D(2, 4, 6)), 1),
  "f32 (2,4,6)")
X(tsr_add(f32(D(2, 1, 6)), f32(D(4, 1))),
  "f32 (2,4,6)")
X(tsr_mul(f32(D(2, 1, 6)), f32(D(4, 1))),
  "f32 (2,4,6)")
X(tsr_div(f32(D(2, 1, 6)), f32(D(4, 1))),
  "f32 (2,4,6)")
X(tsr_pow(f32(D(2, 6)), f32(D(6))),
  "f32 (2,6)")
X(tsr_maximum(f32(D(2, 6)), f32(D(6))),
  "f32 (2,6)")
X(tsr_where(make(TSR_BOOL, D(4, 1)), f32(D(6)), f32(D(2, 4, 6))),
  "f32 (2,4,6)")
X(tsr_rdiv_scalar(f32(D(4, 6)), 2),
  "f32 (4,6)")
X(tsr_silu(f32(D(4, 6))),
  "f32 (4,6)")
X(tsr_gelu(f32(D(4, 6)), TSR_GELU_TANH),
  "f32 (4,6)")
X(tsr_reshape(f32(D(4, 6, 2)), D(24, 2)),
  "f32 (24,2)")
X(tsr_reshape(f32(D(4, 6, 2)), D(2, 2, 3, 4)),
  "f32 (2,2,3,4)")
X(tsr_reshape(f32(D(4, 6)), D(6, 4)),
  "f32 (6,4)")
X(tsr_permute(f32(D(4, 6, 2)), TSR_AXES(2, 0, 1)),
  "f32 (2,4,6)")
X(tsr_broadcast_to(f32(D(4, 1)), D(2, 4, 6)),
  "f32 (2,4,6)")
X(tsr_concat(3, (tsr_tensor *[]){f32(D(2, 6)), f32(D(4, 6)), f32(D(1, 6))}, 0),
  "f32 (7,6)")
X(tsr_stack(2, (tsr_tensor *[]){f32(D(4, 6)), f32(D(4, 6))}, 1),
  "f32 (4,2,6)")
X(tsr_slice(f32(D(4, 6)), D(1, 0), D(4, 6), D(2, 1)),
  "f32 (2,6)")
X(tsr_pad(f32(D(4, 6)), D(0, 1), D(0, 2), 0.5),
  "f32 (4,9)")
X(tsr_pad(f32(D(4, 6)), D(1, 0), D(1, 0), 0),
  "f32 (6,6)")
X(tsr_tril(f32(D(2, 4, 6)), 1),
  "f32 (2,4,6)")
X(tsr_embedding(f32(D(12, 6)), make(TSR_I64, D(2, 4)), EMBED(.padding_idx = 1)),
  "f32 (2,4,6)")
X(tsr_gather(f32(D(2, 12, 6)), 1, make(TSR_I64, D(4))),
  "f32 (2,4,6)")
X(tsr_attention(f32(D(2, 4, 6, 8)), f32(D(2, 4, 3, 8)), f32(D(2, 4, 3, 6)), TSR_ATTENTION_OPTS(.causal = true, .dropout = 0.5)),
  "f32 (2,4,6,6)")
X(tsr_causal_mask(f32(D(2, 4, 6)), 1, 0),
  "f32 (2,4,6)")
X(tsr_mse_loss(f32(D(4, 6)), f32(D(4, 6)), TSR_MEAN),
  "f32 ()")
X(tsr_one_hot(make(TSR_I64, D(4, 6)), 12, TSR_F32),
  "f32 (4,6,12)")
X(tsr_dropout(f32(D(4, 6)), 0.5),
  "f32 (4,6)")
X(tsr_cast(f32(D(4, 6)), TSR_BF16),
  "bf16 (4,6)")
X(tsr_argmax(f32(D(4, 6)), 1),
  "i64 (4)")
