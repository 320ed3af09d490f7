/* SPDX-License-Identifier: Apache-2.0 */
/* The manual page tessera-yaml(5), in mdoc, from the tables that parse. */
#include "src/config/print/man.h"

#include <errno.h>
#include <string.h>

#include "src/config/layers/layers.h"

const char *const tsri_config_examples[] = {
    "tessera: 1\n"
    "placements:\n"
    "  data: {device: cpu, ranks: [0, 1]}\n"
    "model:     {name: mobilenet_v2, args: {num_classes: 10, variant: cifar}}\n"
    "data:      {dataset: cifar10, dir: cifar-10-batches-bin, batch_size: 64, augment: true}\n"
    "tensors:\n"
    "  input: {placement: data, sbp: S(0)}\n"
    "parameters:\n"
    "  - {match: \"*\", placement: data, sbp: B}\n"
    "  - {match: \"classifier.*.weight\", sbp: auto}\n"
    "optimizer: {name: sgd, lr: 0.1, momentum: 0.9, weight_decay: 5.0e-4,\n"
    "            schedule: {name: cosine}}\n"
    "train:     {epochs: 1, steps: 100, seed: 1}\n",
    "tessera: 1\n"
    "placements: {a: {device: cpu, ranks: [0, 1]}, b: {device: cpu, ranks: [2, 3]}}\n"
    "graph:\n"
    "  x: {op: constant, value: [[1, 2], [3, 4]], placement: a, sbp: S(0)}\n"
    "  p: {op: from_local, locals: [[[1, 2]], [[3, 4]]], placement: a, sbp: P}\n"
    "  w: {op: parameter, arange: [0, 0.5], shape: [2, 3], placement: a, sbp: B}\n"
    "  y: {op: matmul, in: [x, w]}\n"
    "  z: {op: to_global, in: y, placement: b, sbp: S(1)}\n"
    "  l: {op: mean, in: y}\n"
    "loss: l\n"
    "fetch: [z, grad(w)]\n",
    "tessera: 1\n"
    "mesh:    {dp: 16, tp: 8}\n"
    "cluster: {gpu: h100-sxm, nodes: 16, gpus_per_node: 8}\n"
    "model:   {name: mlp, args: {hidden: 8192}}\n"
    "data:    {dataset: synthetic, shape: [1, 28, 28], classes: 10, batch_size: 256}\n"
    "tensors: {input: {sbp: {dp: S(0)}}}\n"
    "parameters:\n"
    "  - {match: \"0.*\", sbp: {tp: S(0)}}\n"
    "  - {match: \"2.weight\", sbp: {tp: S(1)}}\n",
    NULL};

/* --- roff ------------------------------------------------------------------------------------- */
/* Text such that roff prints it as it is. */
static void print_some(FILE *f, const char *text, size_t n)
{
    for (const char *p = text; p < text + n; p++) {
        if ((*p == '.' || *p == '\'') && (p == text || p[-1] == '\n'))
            fputs("\\&", f);
        if (*p == '\\')
            fputs("\\e", f);
        else if (*p == '\'')
            fputs("\\(aq", f);
        else if (*p == '^')
            fputs("\\(ha", f);
        else if (*p == '-' && p[1] >= '0' && p[1] <= '9')
            fputs("\\-", f);
        else
            fputc(*p, f);
    }
}

static void print_text(FILE *f, const char *text)
{
    print_some(f, text, strlen(text));
}

/* A sentence a line. */
static void print_paragraph(FILE *f, const char *text)
{
    const char *at = text;
    for (const char *end; (end = strstr(at, ". ")); at = end + 2) {
        print_some(f, at, (size_t)(end - at));
        fputs(".\n", f);
    }
    print_text(f, at);
    if (at[0] && !strchr(".:", at[strlen(at) - 1]))
        fputc('.', f);
    fputc('\n', f);
}

static void print_example(FILE *f, const char *text)
{
    fputs(".Bd -literal -offset indent\n", f);
    print_text(f, text);
    fputs(".Ed\n", f);
}

/* --- fields ----------------------------------------------------------------------------------- */
static bool is_section(const tsri_field *f)
{
    return f->kind == TSRI_FIELD_SECTION || f->kind == TSRI_FIELD_SECTIONS ||
           f->kind == TSRI_FIELD_NAMED;
}

static void print_default(FILE *f, const tsri_field *field)
{
    if (field->fallback == TSRI_NEEDED)
        fputs("Needed.\n", f);
    else if (field->fallback != TSRI_NONE && !is_section(field)) {
        fputs("Default: ", f);
        print_text(f, field->fallback);
        fputs(".\n", f);
    }
}

static void print_field(FILE *f, const tsri_field *field)
{
    char legal[TSRI_LEGAL_MAX];
    fprintf(f, ".It Ic %s\n", field->name);
    if (field->doc && field->doc[0]) {
        char first[2000];
        snprintf(first, sizeof first, "%s", field->doc);
        if (first[0] >= 'a' && first[0] <= 'z' && strncmp(first, "cifar:", 6) != 0)
            first[0] = (char)(first[0] - 'a' + 'A');
        print_paragraph(f, first);
    }
    if (!is_section(field)) {
        fputs("Legal is ", f);
        print_text(f, tsri_field_legal(field, legal));
        fputs(".\n", f);
    }
    print_default(f, field);
    if (field->on_resume == TSRI_RESUME_REFUSED)
        fputs("A resumed run refuses another value.\n", f);
    else if (field->on_resume == TSRI_RESUME_KEPT)
        fputs("A resumed run keeps what it began with.\n", f);
    else if (field->on_resume == TSRI_RESUME_WINS)
        fputs("A resumed run takes another value.\n", f);
}

static void print_section(FILE *f, const tsri_section *s);

static void print_fields(FILE *f, const tsri_section *s)
{
    if (!s->nfields)
        return;
    fputs(".Bl -tag -width 4n -compact\n", f);
    for (int i = 0; i < s->nfields; i++) {
        print_field(f, &s->fields[i]);
        if (is_section(&s->fields[i]) && s->fields[i].section != &tsri_layer_section)
            print_section(f, s->fields[i].section);
    }
    fputs(".El\n", f);
}

static void print_variants(FILE *f, const tsri_section *s)
{
    fputs(".Bl -tag -width 4n -compact\n", f);
    for (int i = 0; i < s->nvariants; i++) {
        fprintf(f, ".It Ic %s : %s\n", s->selector, s->variants[i].name);
        if (s->variants[i].doc)
            print_paragraph(f, s->variants[i].doc);
        print_fields(f, &s->variants[i]);
    }
    fputs(".El\n", f);
}

static void print_section(FILE *f, const tsri_section *s)
{
    if (s->selector)
        print_variants(f, s);
    print_fields(f, s);
}

/* --- ops -------------------------------------------------------------------------------------- */
static void print_ops(FILE *f)
{
    fputs(".Sh OPS\n"
          "An entry of\n.Ic graph\nis a mapping with the key\n.Ic op ,\n"
          "the keys of that op, and these:\n",
          f);
    print_fields(f, &tsri_op_section);
    fputs(".Pp\nThe ops, each with its operands in\n.Ic in\n"
          "(those with ? may be left out) and its own keys:\n"
          ".Bl -tag -width 4n\n",
          f);
    for (int i = 0; i < tsri_nops; i++) {
        const tsri_section *s = &tsri_op_sections[i];
        fprintf(f, ".It Ic %s%s%s%s\n", s->name, s->operands ? " ( " : "",
                s->operands ? s->operands : "", s->operands ? " )" : "");
        print_paragraph(f, s->doc);
        print_fields(f, s);
    }
    fputs(".El\n", f);
}

/* --- layers ----------------------------------------------------------------------------------- */
static void print_layers(FILE *f)
{
    const tsri_section *all = &tsri_layer_section;
    fputs(".Sh LAYERS\n"
          "A layer is a mapping with the key\n.Ic layer ,\n"
          "the keys of that layer, and these; its word alone stands for one without keys:\n",
          f);
    print_fields(f, all);
    fputs(".Pp\nThe names of parameters are those of PyTorch, as in\n.Li 0.weight .\n"
          "The layers with parameters, and those that hold others:\n"
          ".Bl -tag -width 4n\n",
          f);
    int i = 0;
    for (; i < all->nvariants && all->variants[i].size == all->size; i++) {
        fprintf(f, ".It Ic %s\n", all->variants[i].name);
        print_paragraph(f, all->variants[i].doc);
        print_fields(f, &all->variants[i]);
    }
    fputs(".El\n.Pp\nOps of one operand are layers, too, with their own keys of OPS:\n", f);
    for (; i < all->nvariants; i++)
        fprintf(f, ".Ic %s%s\n", all->variants[i].name, i + 1 < all->nvariants ? " ," : " .");
}

/* --- resumed runs ----------------------------------------------------------------------------- */
/* The keys of one fate, each printed once although several variants have it. */
typedef struct fates {
    FILE *f;
    tsri_on_resume fate;
    int n;
    char seen[64][64];
} fates;

static void print_key(fates *all, const char *path, const char *name)
{
    char key[64];
    snprintf(key, sizeof key, "%.*s%s%.*s", 30, path, path[0] ? "." : "", 30, name);
    for (int i = 0; i < all->n; i++)
        if (!strcmp(all->seen[i], key))
            return;
    if (all->n == 64)
        return;
    snprintf(all->seen[all->n++], sizeof key, "%s", key);
    fprintf(all->f, ".It Ic %s\n", key);
}

static void print_fates(fates *all, const tsri_section *s, const char *path, tsri_on_resume above);

static void print_fates_of(fates *all, const tsri_section *s, const char *path,
                           tsri_on_resume above)
{
    for (int i = 0; i < s->nfields; i++) {
        const tsri_field *f = &s->fields[i];
        const tsri_on_resume fate = tsri_field_on_resume(f, above);
        char key[64];
        if (fate == all->fate && fate != above)
            print_key(all, path, f->name);
        if (!is_section(f) || fate == TSRI_RESUME_REFUSED)
            continue;
        snprintf(key, sizeof key, "%.*s%s%.*s", 30, path, path[0] ? "." : "", 30, f->name);
        print_fates(all, f->section, key, fate);
    }
}

static void print_fates(fates *all, const tsri_section *s, const char *path, tsri_on_resume above)
{
    if (s->selector && s->on_resume == all->fate)
        print_key(all, path, s->selector);
    print_fates_of(all, s, path, above);
    for (int i = 0; i < s->nvariants; i++)
        print_fates_of(all, &s->variants[i], path, above);
}

static void print_resume(FILE *f)
{
    fates refused = {.f = f, .fate = TSRI_RESUME_REFUSED},
          kept = {.f = f, .fate = TSRI_RESUME_KEPT};
    fputs(
        ".Sh RESUMED RUNS\n"
        "A run goes on from the newest checkpoint in\n.Ic train.checkpoint.dir ,\n"
        "which holds the experiment of the run that saved it.\n"
        "A resumed run is that run: it refuses to change these keys, naming the one that differs:\n"
        ".Bl -bullet -compact\n",
        f);
    print_fates(&refused, &tsri_experiment_section, "", TSRI_RESUME_WINS);
    fputs(".El\n"
          "File names, placements and signatures within them may differ: they say where something "
          "is.\n"
          "These keys speak of the beginning; what the checkpoint holds stays, and a warning says "
          "so:\n"
          ".Bl -bullet -compact\n",
          f);
    print_fates(&kept, &tsri_experiment_section, "", TSRI_RESUME_WINS);
    fputs(".El\n"
          "Of all other keys the new value wins, and is printed.\n"
          "A changed\n.Ic lr\nstarts anew, without the falls of a plateau so far; an unchanged one "
          "keeps them.\n"
          ".Ic train.steps\nis the total, steps before included.\n"
          "A checkpoint of an earlier version holds no experiment: the optimizer goes on with the\n"
          "numbers of the checkpoint, and a warning says so.\n",
          f);
}

/* --- the page --------------------------------------------------------------------------------- */
static const char head[] =
    ".\\\" SPDX-License-Identifier: Apache-2.0\n"
    ".\\\" Written by tests/unit/config_man from the tables in src/config; not to be edited.\n"
    ".Dd November 21, 2026\n"
    ".Dt TESSERA-YAML 5\n"
    ".Os\n"
    ".Sh NAME\n"
    ".Nm tessera-yaml\n"
    ".Nd experiments with placements and signatures\n"
    ".Sh DESCRIPTION\n"
    "An experiment is a YAML file that says what to compute, on which ranks, and how each tensor "
    "is\n"
    "laid out over them.\n"
    ".Xr tessera 1\n"
    "runs and plans it.\n"
    "It either trains a model\n"
    ".Pq Ic model , data , tensors , parameters , optimizer , train\n"
    "or runs a graph of ops\n"
    ".Pq Ic graph , loss , fetch , train ,\n"
    "which an\n.Ic optimizer\ntrains, if there is one, on\n.Ic data .\n"
    ".Pp\n"
    "A file holds one document in UTF-8, of at most 16 MiB, 1048576 values, and lists and "
    "mappings\n"
    "in 64 levels.\n"
    "Unknown keys, keys that are there twice, anchors, aliases, tags and merge keys are errors, "
    "as\n"
    "are numbers that are not finite or out of range.\n"
    "Errors name file, line, column and the path of the key.\n"
    "Relative file names start from the folder of the file; those of overrides from the working\n"
    "folder.\n"
    ".Pp\n"
    "An override\n"
    ".Ar path Ns = Ns Ar value ,\n"
    "as in\n"
    ".Li train.steps=5 ,\n"
    ".Li graph.y.in[1]=w\n"
    "or\n"
    ".Li parameters[0].sbp=S(0) ,\n"
    "puts a value, itself YAML, into the file, behind what it includes.\n"
    "One of a variable,\n"
    ".Li vars.batch=128 ,\n"
    "must be of one that the file uses.\n"
    ".Pp\n"
    "Placements and the entries of a graph have names: up to 100 letters, digits, _ and -, with a\n"
    "letter or _ first.\n"
    ".Pp\n"
    "A signature has an entry for each dimension of its placement:\n"
    ".Li S(i) ,\n"
    ".Li B ,\n"
    ".Li P ,\n"
    ".Li P(max)\n"
    "or\n"
    ".Li P(min) ,\n"
    "as in\n"
    ".Li \"(S(0),B)\" .\n"
    "Where the placement is a mesh with names it can say them instead, as in\n"
    ".Li {dp: S(0)}\n"
    "or the text\n"
    ".Li dp:S(0),tp:B ;\n"
    "axes that are not named are B.\n"
    ".Sh KEYS\n";

tsr_status tsri_config_man(FILE *out)
{
    if (!out)
        return tsri_fail(TSR_ERR_INVALID, "tsri_config_man: the file is NULL");
    const tsri_section *all = &tsri_experiment_section;
    fputs(head, out);
    fputs(".Bl -tag -width 4n\n", out);
    for (int i = 0; i < all->nfields; i++) {
        print_field(out, &all->fields[i]);
        if (is_section(&all->fields[i]) && all->fields[i].section != &tsri_op_section)
            print_section(out, all->fields[i].section);
    }
    fputs(".El\n", out);
    print_resume(out);
    print_layers(out);
    print_ops(out);
    fputs(".Sh EXAMPLES\nTraining over two ranks, data parallel but for the classifier, of which "
          "the compiler decides:\n",
          out);
    print_example(out, tsri_config_examples[0]);
    fputs("A graph that is made on two ranks and moved to two others:\n", out);
    print_example(out, tsri_config_examples[1]);
    fputs("Data and tensor parallelism on a mesh with names, planned for 128 GPUs:\n", out);
    print_example(out, tsri_config_examples[2]);
    fputs(".Sh SEE ALSO\n.Xr tessera 1\n", out);
    return ferror(out) ? tsri_fail(TSR_ERR_IO, "can't write the page: %s", strerror(errno))
                       : TSR_OK;
}
