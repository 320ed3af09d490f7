/* SPDX-License-Identifier: Apache-2.0 */
#include "src/nn/safetensors_text.h"

#include <string.h>

#include <cjson/cJSON.h>

enum {
    MAX_DEPTH = 32,
};

/* The dtypes of the format that Tessera has not got. */
static const tsri_st_dtype others[] = {
    {"I8", 8, TSR_DTYPE_NONE},      {"I16", 16, TSR_DTYPE_NONE},    {"U16", 16, TSR_DTYPE_NONE},
    {"U32", 32, TSR_DTYPE_NONE},    {"U64", 64, TSR_DTYPE_NONE},    {"C64", 64, TSR_DTYPE_NONE},
    {"F8_E4M3", 8, TSR_DTYPE_NONE}, {"F8_E5M2", 8, TSR_DTYPE_NONE}, {"F8_E8M0", 8, TSR_DTYPE_NONE},
    {"F6_E2M3", 6, TSR_DTYPE_NONE}, {"F6_E3M2", 6, TSR_DTYPE_NONE}, {"F4", 4, TSR_DTYPE_NONE},
};

enum {
    NOTHERS = sizeof others / sizeof others[0],
};

bool tsri_st_dtype_find(const char *name, tsri_st_dtype *out_dtype)
{
    for (int i = 1; i < TSR_DTYPE_COUNT_; i++)
        if (!strcmp(name, tsri_dtypes[i].safetensors)) {
            *out_dtype = (tsri_st_dtype){tsri_dtypes[i].safetensors, (int)tsri_dtypes[i].size * 8,
                                         (tsr_dtype)i};
            return true;
        }
    for (int i = 0; i < NOTHERS; i++)
        if (!strcmp(name, others[i].name)) {
            *out_dtype = others[i];
            return true;
        }
    return false;
}

static bool fault(tsri_members *m, const char *what)
{
    m->fault = what;
    return false;
}

static void skip_space(tsri_members *m)
{
    while (m->at < m->end && (*m->at == ' ' || *m->at == '\t' || *m->at == '\n' || *m->at == '\r'))
        m->at++;
}

static bool skip_string(tsri_members *m)
{
    if (m->at == m->end || *m->at != '"')
        return fault(m, "a string is due");
    for (m->at++; m->at < m->end; m->at++) {
        if (*m->at == '"') {
            m->at++;
            return true;
        }
        if ((unsigned char)*m->at < 0x20)
            return fault(m, "a control character in a string");
        if (*m->at != '\\')
            continue;
        if (m->end - m->at >= 6 && !memcmp(m->at, "\\u0000", 6))
            return fault(m, "a NUL in a string");
        if (++m->at == m->end)
            break;
    }
    return fault(m, "a string without end");
}

static bool skip_nested(tsri_members *m)
{
    int depth = 0;
    do {
        if (m->at == m->end)
            return fault(m, "an object or array without end");
        char c = *m->at;
        if (c == '"') {
            if (!skip_string(m))
                return false;
            continue;
        }
        if (c == '{' || c == '[')
            depth++;
        else if (c == '}' || c == ']')
            depth--;
        if (depth > MAX_DEPTH)
            return fault(m, "nested too deeply");
        m->at++;
    } while (depth);
    return true;
}

static bool skip_value(tsri_members *m)
{
    if (m->at == m->end)
        return fault(m, "a value is due");
    if (*m->at == '"')
        return skip_string(m);
    if (*m->at == '{' || *m->at == '[')
        return skip_nested(m);
    const char *begin = m->at;
    while (m->at < m->end && !strchr(",}] \t\n\r", *m->at)) /* finds NUL, too */
        m->at++;
    return m->at > begin || fault(m, "a value is due");
}

bool tsri_members_next(tsri_members *m, tsri_span *out_key, tsri_span *out_value)
{
    bool first = !m->inside;
    skip_space(m);
    if (first) {
        if (m->at == m->end || *m->at != '{')
            return fault(m, "'{' is due");
        m->inside = true;
        m->at++;
        skip_space(m);
    }
    if (m->at < m->end && *m->at == '}') {
        m->at++;
        return false;
    }
    if (!first) {
        if (m->at == m->end || *m->at != ',')
            return fault(m, "',' or '}' is due");
        m->at++;
        skip_space(m);
    }
    const char *key = m->at;
    if (!skip_string(m))
        return false;
    *out_key = (tsri_span){key, (size_t)(m->at - key)};
    skip_space(m);
    if (m->at == m->end || *m->at != ':')
        return fault(m, "':' is due");
    m->at++;
    skip_space(m);
    const char *value = m->at;
    if (!skip_value(m))
        return false;
    *out_value = (tsri_span){value, (size_t)(m->at - value)};
    return true;
}

bool tsri_utf8_valid(const char *text, size_t n)
{
    const unsigned char *p = (const unsigned char *)text;
    for (size_t i = 0; i < n;) {
        unsigned char c = p[i];
        if (c < 0x80) {
            i++;
            continue;
        }
        size_t more = c >= 0xC2 && c <= 0xDF   ? 1
                      : c >= 0xE0 && c <= 0xEF ? 2
                      : c >= 0xF0 && c <= 0xF4 ? 3
                                               : 0;
        if (!more || more >= n - i)
            return false;
        /* No longer form than needed, no surrogates, nothing above U+10FFFF. */
        unsigned char least = c == 0xE0 ? 0xA0 : c == 0xF0 ? 0x90 : 0x80;
        unsigned char most = c == 0xED ? 0x9F : c == 0xF4 ? 0x8F : 0xBF;
        for (size_t k = 1; k <= more; k++) {
            if (p[i + k] < least || p[i + k] > most)
                return false;
            least = 0x80;
            most = 0xBF;
        }
        i += more + 1;
    }
    return true;
}

char *tsri_json_string(tsri_pool *pool, tsri_span literal, tsr_status *out_status)
{
    *out_status = TSR_ERR_FORMAT;
    const char *end = NULL;
    if (!literal.n || literal.p[0] != '"')
        return NULL;
    cJSON *json = cJSON_ParseWithLengthOpts(literal.p, literal.n, &end, false);
    char *text = NULL;
    if (cJSON_IsString(json) && end == literal.p + literal.n) {
        text = tsri_pool_strdup(pool, json->valuestring);
        *out_status = text ? TSR_OK : TSR_ERR_NO_MEMORY;
    }
    cJSON_Delete(json);
    return text;
}

bool tsri_json_put_string(FILE *f, const char *text)
{
    cJSON *json = cJSON_CreateStringReference(text);
    char *literal = json ? cJSON_PrintUnformatted(json) : NULL;
    if (literal)
        fputs(literal, f);
    cJSON_free(literal);
    cJSON_Delete(json);
    return literal;
}
