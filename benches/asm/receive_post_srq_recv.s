    cmp rdx,0x1
    jne 0
    cmp QWORD PTR [rsi+0x8],0x1
    jne 0
    mov rcx,QWORD PTR [rsi]
    mov rax,QWORD PTR [rdi]
    mov eax,DWORD PTR [rax]
    test al,0x2
    je 0
    mov r8d,DWORD PTR [rcx+0x8]
    lea eax,[r8-0x1]
    cmp eax,DWORD PTR [rdi+0x34]
    jae 0
    mov r9d,DWORD PTR [rdi+0x38]
    lea eax,[r9+0x1]
    cmp eax,DWORD PTR [rdi+0x3c]
    je 0
    mov edx,DWORD PTR [rdi+0x30]
    imul rdx,r9
    add rdx,QWORD PTR [rdi+0x8]
    mov r10,QWORD PTR [rcx]
    mov ecx,DWORD PTR [rcx+0xc]
    bswap r8d
    bswap ecx
    bswap r10
    mov DWORD PTR [rdx+0x10],r8d
    mov DWORD PTR [rdx+0x14],ecx
    mov QWORD PTR [rdx+0x18],r10
    mov rcx,QWORD PTR [rsi+0x10]
    mov rdx,QWORD PTR [rdi+0x10]
    mov QWORD PTR [rdx+r9*8],rcx
    mov rcx,QWORD PTR [rdi+0x18]
    mov BYTE PTR [rcx+r9*1],0x1
    mov DWORD PTR [rdi+0x38],eax
    mov rcx,QWORD PTR [rdi+0x20]
    add eax,DWORD PTR [rdi+0x40]
    movzx eax,ax
    bswap eax
    mov DWORD PTR [rcx],eax
    xor eax,eax
    ret
0:
    push rax
    call QWORD PTR [_ZN8mlx5_wqe7receive6shared18SharedReceiveQueue9post_list]
    add rsp,0x8
    ret
