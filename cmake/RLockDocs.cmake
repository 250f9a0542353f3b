# SPDX-License-Identifier: Apache-2.0
# The target rlock_docs: API documentation in <build>/docs/html; a warning is an error.
find_package(Doxygen REQUIRED OPTIONAL_COMPONENTS dot)

if(Doxygen_dot_FOUND)
  set(RLOCK_DOXYGEN_HAVE_DOT YES)
else()
  set(RLOCK_DOXYGEN_HAVE_DOT NO)
endif()
configure_file(
  "${PROJECT_SOURCE_DIR}/docs/Doxyfile.in"
  "${PROJECT_BINARY_DIR}/Doxyfile"
  @ONLY)
file(MAKE_DIRECTORY "${PROJECT_BINARY_DIR}/docs")
add_custom_target(rlock_docs
  COMMAND Doxygen::doxygen "${PROJECT_BINARY_DIR}/Doxyfile"
  WORKING_DIRECTORY "${PROJECT_SOURCE_DIR}"
  COMMENT "Generating API documentation"
  VERBATIM)
