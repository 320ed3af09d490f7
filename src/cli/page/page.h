/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pages: one HTML file with its style, scripts and data, which opens from the disk and asks for
 * nothing else. The scripts draw what the data, a command's JSON, says.
 */
#ifndef TESSERA_CLI_PAGE_PAGE_H
#define TESSERA_CLI_PAGE_PAGE_H

#include <tessera/status.h>

#include <stddef.h>

struct cJSON;

/* Writes a page that shows a value, which it frees; NULL is out of memory. kind: the view that it
 * is for, as in main.js. The file appears as a whole. */
tsr_status page_write(const char *path, const char *kind, const char *title, struct cJSON *json);

/* Made of page.css and the scripts by the build. */
extern const unsigned char page_style[], page_script[];
extern const size_t page_style_size, page_script_size;

#endif
